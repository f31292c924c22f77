"""The compiled event loop against the literal one, and what must hold of every replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from random_jobs import slowly, static_jobs
from replay_literal_events import replay_tasks_literally
from task_graphs import layered_graphs, task_graphs

from paracosm.errors import InputError
from paracosm.jobs.expand import expand
from paracosm.jobs.job import Job, TaskGraph
from paracosm.simulation.events import replay_tasks


@settings(deadline=None, max_examples=500)
@given(task_graphs())
def test_event_for_event_as_the_literal_loop(tasks: TaskGraph) -> None:
    arrive, begin, end = replay_tasks_literally(tasks)
    if None in end:
        event("some never end")
        with pytest.raises(InputError, match=f"{end.count(None)} of {len(tasks)} tasks never end"):
            replay_tasks(tasks)
    else:
        event("all end")
        times = replay_tasks(tasks)
        assert times.arrive.tolist() == arrive
        assert times.begin.tolist() == begin
        assert times.end.tolist() == end


@settings(deadline=None, max_examples=200)
@given(layered_graphs())
def test_bounds_that_always_hold_of_events(tasks: TaskGraph) -> None:
    times = replay_tasks(tasks)
    alone = tasks.duration + [least_flow_time(tasks, row) for row in range(len(tasks))]
    assert longest_path(tasks, alone) <= times.makespan <= alone.sum() + len(tasks)
    assert (times.arrive <= times.begin).all()
    assert (times.end >= times.begin + alone - 1).all()
    for row in range(len(tasks)):
        before = tasks.dependencies[tasks.offsets[row] : tasks.offsets[row + 1]]
        assert times.arrive[row] >= times.end[before].max(initial=0)
    for resource in range(len(tasks.policy)):
        rows = np.flatnonzero(tasks.resource == resource)
        rows = rows[np.lexsort((times.end[rows], times.arrive[rows]))]
        assert (times.arrive[rows[1:]] >= times.end[rows[:-1]]).all()
    for meeting in np.unique(tasks.meeting[tasks.meeting >= 0]):
        rows = np.flatnonzero(tasks.meeting == meeting)
        assert set(times.begin[rows]) == {times.arrive[rows].max()}
        assert set(times.end[rows]) == {times.begin[rows[0]] + tasks.duration[rows].max()}


@settings(deadline=None, max_examples=200)
@given(layered_graphs())
def test_no_link_carries_more_than_its_bandwidth(tasks: TaskGraph) -> None:
    """What begins and ends between two instants fits through each link in between.

    But for what 1/1024 ps brings of each flow, which is forgiven.
    """
    times = replay_tasks(tasks)
    first_byte = times.begin + tasks.duration
    for link, bandwidth in enumerate(tasks.bandwidth * 1e-12):
        over = np.array([takes(tasks, row, link) for row in range(len(tasks))])
        for start in first_byte[over]:
            for stop in times.end[over]:
                inside = over & (first_byte >= start) & (times.end <= stop)
                room = bandwidth * (max(0, stop - start) + inside.sum() / 1024)
                assert tasks.demand[inside].sum() <= room + 1e-9


@settings(deadline=None, max_examples=100)
@given(layered_graphs(), st.randoms(use_true_random=False))
def test_rows_can_be_renumbered_where_nobody_queues(tasks: TaskGraph, random: object) -> None:
    tasks = replace(tasks, resource=np.full_like(tasks.resource, -1))
    order = np.random.default_rng(random.randrange(2**32)).permutation(len(tasks))  # type: ignore[attr-defined]
    times, renumbered = replay_tasks(tasks), replay_tasks(in_other_order(tasks, order))
    assert renumbered.end.tolist() == times.end[order].tolist()
    assert renumbered.begin.tolist() == times.begin[order].tolist()


@settings(deadline=None, max_examples=100)
@given(static_jobs())
def test_a_job_written_out_has_the_instants_of_its_slow_replay(job: Job) -> None:
    times = replay_tasks(expand(job))
    slow = [span for rank in slowly(job) for span in rank]
    spans = zip(times.arrive.tolist(), times.begin.tolist(), times.end.tolist(), strict=True)
    assert list(spans) == slow


@settings(deadline=None, max_examples=30)
@given(layered_graphs())
def test_again_is_the_same(tasks: TaskGraph) -> None:
    assert replay_tasks(tasks).end.tolist() == replay_tasks(tasks).end.tolist()


def least_flow_time(tasks: TaskGraph, row: int) -> int:
    """Return the picoseconds that the bytes of a task take where nobody else has any."""
    links = [link for link in range(len(tasks.bandwidth)) if takes(tasks, row, link)]
    if not links:
        return 0
    return int(np.ceil(tasks.demand[row] / (tasks.bandwidth[links].min() * 1e-12)))


def takes(tasks: TaskGraph, row: int, link: int) -> bool:
    route = tasks.route[row]
    path = tasks.routes[tasks.route_offsets[route] : tasks.route_offsets[route + 1]]
    return bool(route >= 0 and link in path)


def longest_path(tasks: TaskGraph, alone: np.ndarray) -> int:
    """Return the critical path: rows depend on earlier ones only."""
    end = np.zeros(len(tasks), dtype=np.int64)
    for row in range(len(tasks)):
        before = tasks.dependencies[tasks.offsets[row] : tasks.offsets[row + 1]]
        end[row] = end[before].max(initial=0) + alone[row]
    return int(end.max(initial=0))


def in_other_order(tasks: TaskGraph, order: np.ndarray) -> TaskGraph:
    """Return the graph whose row i is row `order[i]` of this one."""
    place = np.argsort(order)
    lists = [
        place[tasks.dependencies[tasks.offsets[row] : tasks.offsets[row + 1]]] for row in order
    ]
    columns = {
        name: getattr(tasks, name)[order]
        for name in ("resource", "duration", "priority", "meeting", "awaited", "route", "demand")
    }
    return replace(
        tasks,
        **columns,
        offsets=np.cumsum([0, *(len(each) for each in lists)]),
        dependencies=np.concatenate([*lists, np.zeros(0, dtype=np.int64)]),
    )
