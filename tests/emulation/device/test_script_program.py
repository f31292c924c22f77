"""What recorded ranks take, by hand: ops of 1 ms, a host that takes no time unless it is said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import Row, iterations, recording

from paracosm.cluster import Link, switch
from paracosm.emulation.device.durations import DeviceDurations
from paracosm.emulation.device.program import HostCosts, ScriptJob, script_job
from paracosm.emulation.device.recording import (
    COLLECTIVE,
    DEVICE,
    EVENT,
    GRAPH,
    OP,
    RECORD,
    STEP,
    STREAM,
    WAIT,
    WAIT_EVENT,
    Call,
    Recording,
)
from paracosm.emulation.kinds import groups_like
from paracosm.errors import InputError
from paracosm.simulation import JobSchedule, replay_job

MS = 1e-3
LINK = Link(bandwidth=1e6)  # 1,000 bytes in a millisecond
# A ring of two sends two halves: 2,000 bytes take 2 ms.
ALL_REDUCE = Call("all_reduce", 2000, "all")
FREE = HostCosts(0.0, 0.0)


def durations(made: Recording, seconds: float = MS) -> DeviceDurations:
    count = len(made.ops)
    return DeviceDurations(np.full(count, seconds), ("elementwise",) * count, (1.0, 1.0), {})


def play(
    *recordings: Recording, host: HostCosts = FREE, world: int = 2, slowdown: float = 1.0
) -> tuple[ScriptJob, JobSchedule]:
    script = script_job(
        recordings,
        [durations(recording) for recording in recordings],
        switch(world, 0, LINK),
        host=host,
        slowdown=slowdown,
        algorithm="ring",
    )
    return script, replay_job(script.job)


def time_of(rows: Sequence[Row], **options: object) -> float:
    """Return the milliseconds of an iteration in the steady state."""
    script, schedule = play(recording(iterations(rows)), **options)  # type: ignore[arg-type]
    done = np.maximum.accumulate(schedule.end[schedule.tasks_of(script.recorded[0])])
    return float(np.diff(done[script.ends[0]])[-1] / MS)


OPS: list[Row] = [(OP, 0, "aten.mm"), (OP, 0, "aten.add")]


def test_ops_of_a_stream_run_in_turn() -> None:
    assert time_of(OPS) == pytest.approx(2)


def test_streams_run_side_by_side() -> None:
    assert time_of([*OPS, (OP, 1, "aten.mm")]) == pytest.approx(2)


def test_a_stream_waits_for_an_event_of_another() -> None:
    # Stream 1 begins after the first op of stream 0, and stream 0 ends after both of stream 1.
    rows: list[Row] = [
        (OP, 0, "aten.mm"),
        (RECORD, 0, 7),
        (WAIT_EVENT, 1, 7),
        (OP, 1, "aten.mm"),
        (OP, 1, "aten.mm"),
        (RECORD, 1, 8),
        (WAIT_EVENT, 0, 8),
        (OP, 0, "aten.add"),
    ]
    assert time_of(rows) == pytest.approx(4)


def test_an_event_of_the_iteration_before_is_waited_for() -> None:
    # Of two iterations that follow one another, stream 1's op begins after stream 0's of the one
    # before, which nothing else holds up.
    rows = [(WAIT_EVENT, 1, 0), (OP, 1, "aten.mm"), (RECORD, 0, 0), (OP, 0, "aten.add")]
    numbered: list[Row] = []
    for number in range(3):
        for kind, stream, *rest in rows:
            own = {WAIT_EVENT: number - 1, RECORD: number}.get(kind)
            numbered.append((kind, stream, *(rest if own is None else [own])))
        numbered.append((9, 0))
    script, schedule = play(recording(numbered))
    done = np.maximum.accumulate(schedule.end[schedule.tasks_of(script.recorded[0])])
    assert np.diff(done[script.ends[0]])[-1] == pytest.approx(MS)


def test_a_graph_is_one_launch_of_the_host() -> None:
    # Two ops of 1 ms with 5 ms of the host for each; as a graph, 5 ms once, before both.
    host = HostCosts(5 * MS, 5 * MS)
    assert time_of(OPS, host=host) == pytest.approx(10)
    assert time_of([(GRAPH, 0, 2), *OPS], host=host) == pytest.approx(5)
    assert time_of([(GRAPH, 0, 1), *OPS], host=host) == pytest.approx(10)
    # Nothing of it begins before its launch, also where the device is free.
    assert time_of([(GRAPH, 0, 2), *OPS, (STREAM, 0)], host=host) == pytest.approx(7)


def test_a_collective_in_a_graph_is_launched_with_it() -> None:
    rows: list[Row] = [(GRAPH, 0, 3), (COLLECTIVE, 0, ALL_REDUCE, 0), (WAIT, 0, 0), *OPS]
    assert time_of(rows, host=HostCosts(5 * MS, 7 * MS)) == pytest.approx(10)


def test_a_collective_runs_beside_what_does_not_wait_for_it() -> None:
    rows: list[Row] = [(COLLECTIVE, 0, ALL_REDUCE, 0), *OPS]
    assert time_of(rows) == pytest.approx(2)
    assert time_of([*rows, (WAIT, 0, 0), (OP, 0, "aten.add")]) == pytest.approx(3)
    assert time_of(
        [(OP, 0, "aten.mm"), (COLLECTIVE, 0, ALL_REDUCE, 0), (WAIT, 0, 0), (OP, 0, "aten.add")]
    ) == pytest.approx(4)


def test_collectives_of_one_group_take_turns() -> None:
    rows: list[Row] = [(COLLECTIVE, 0, ALL_REDUCE, 0), (COLLECTIVE, 1, ALL_REDUCE, 1)]
    assert time_of([*rows, (WAIT, 0, 1), (OP, 0, "aten.add")]) == pytest.approx(5)


def test_the_host_issues_one_after_the_other() -> None:
    # Three requests of 2 ms: the device is done long before the next one comes.
    rows: list[Row] = [*OPS, (OP, 1, "aten.mm")]
    assert time_of(rows, host=HostCosts(2 * MS, 2 * MS)) == pytest.approx(6)


@pytest.mark.parametrize("wait", [(STREAM, 0), (DEVICE, 0), (EVENT, 0, 3)])
def test_the_host_waits_for_the_device(wait: Row) -> None:
    """Host 0.5, op 1, and only then again host 0.5 and op 1."""
    rows: list[Row] = [(OP, 0, "aten.mm"), (RECORD, 0, 3), wait, (OP, 0, "aten.add"), (STREAM, 0)]
    assert time_of(rows, host=HostCosts(MS / 2, MS / 2)) == pytest.approx(3)


def test_computing_beside_collectives_is_slower() -> None:
    # The collective lasts 2 ms, in which two ops at half the speed get 1 ms of work done; the rest
    # takes 1 ms at full speed.
    rows: list[Row] = [(COLLECTIVE, 0, ALL_REDUCE, 0), *OPS, (WAIT, 0, 0), (STREAM, 0)]
    assert time_of(rows, slowdown=2.0) == pytest.approx(3)


def test_a_pipeline_meets_by_messages() -> None:
    # Rank 0 computes 1 ms and sends 1,000 bytes, 1 ms; rank 1 receives, and computes 2 ms.
    send, receive = Call("send", 1000, "all", 1), Call("recv", 1000, "all", 0)
    first = recording(iterations([(OP, 0, "aten.mm"), (COLLECTIVE, 0, send, 0), (WAIT, 0, 0)]))
    last = recording(iterations([(COLLECTIVE, 0, receive, 0), (WAIT, 0, 0), *OPS]), rank=1)
    script, schedule = play(first, last)
    assert script.is_whole
    end = schedule.end[schedule.tasks_of(1)][script.ends[1][0] - 1]
    assert end == pytest.approx(4 * MS)


def test_a_rank_that_was_not_recorded_is_named() -> None:
    send = Call("send", 1000, "all", 1)
    made = recording(iterations([(COLLECTIVE, 0, send, 0)]), groups={"all": (0, 1, 2)}, world=4)
    with pytest.raises(InputError, match="exchanges messages with rank 1, which was not recorded"):
        play(made, recording(iterations(OPS), rank=3, world=4), world=4)


@pytest.mark.parametrize(
    ("members", "world", "like"),
    [
        ((0, 8), 16, [[i, i + 8] for i in range(8)]),
        ((4, 5, 6, 7), 8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ((0, 1, 2), 3, [[0, 1, 2]]),
        ((0, 3), 5, None),
        ((0, 1, 2), 4, None),
    ],
)
def test_groups_of_a_mesh_are_shifts_of_one(
    members: tuple[int, ...], world: int, like: list[list[int]] | None
) -> None:
    found = groups_like(members, world)
    assert like is None if found is None else found.tolist() == like


def test_every_rank_of_a_mesh_is_played_and_a_slow_one_holds_up_all() -> None:
    """Of four ranks in pairs {0, 1} and {0, 2}, rank 3 is slow; rank 0 has no group with it."""
    from paracosm.cluster.changes import apply_changes, parse_change

    rows: list[Row] = [
        (OP, 0, "aten.mm"),
        (COLLECTIVE, 0, Call("all_reduce", 0, "rows"), 0),
        (WAIT, 0, 0),
        (COLLECTIVE, 0, Call("all_reduce", 0, "columns"), 1),
        (WAIT, 0, 1),
    ]
    groups = {"rows": (0, 1), "columns": (0, 2)}
    made = recording(iterations(rows), groups=groups, world=4)
    cluster = apply_changes(switch(4, 0, LINK), [parse_change("worker 3: compute 3x slower")])
    script = script_job([made], [durations(made)], cluster, host=FREE, algorithm="ring")
    schedule = replay_job(script.job)
    assert script.job.ranks == 4
    done = np.maximum.accumulate(schedule.end[schedule.tasks_of(0)])
    assert np.diff(done[script.ends[0]])[-1] == pytest.approx(3 * MS)


def test_groups_of_the_same_ranks_have_streams_of_their_own() -> None:
    rows = [
        (COLLECTIVE, 0, Call("all_reduce", 2000, "all")),
        (COLLECTIVE, 0, Call("all_reduce", 2000, "others")),
        (WAIT, 0, 0),
        (WAIT, 0, 1),
        (OP, 0, "aten.mm"),
    ]
    time, count = seconds_in_all(rows)
    assert time == pytest.approx(count * 3 * MS)  # 2 ms side by side, then 1 ms


GROUPS = {"all": (0, 1), "others": (0, 1)}
requests = st.lists(
    st.one_of(
        st.tuples(st.just(OP), st.integers(0, 2), st.sampled_from(["aten.mm", "aten.add"])),
        st.tuples(st.sampled_from([RECORD, WAIT_EVENT]), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just(STREAM), st.integers(0, 2)),
        st.tuples(
            st.just(COLLECTIVE),
            st.integers(0, 2),
            st.builds(
                Call,
                st.sampled_from(["all_reduce", "all_gather"]),
                st.sampled_from([0, 1000, 4000]),
                st.sampled_from(list(GROUPS)),
            ),
        ),
        st.tuples(st.just(WAIT), st.integers(-1, 2), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=25,
)


def numbered(rows: Sequence[Row]) -> list[Row]:
    """Return the requests of three iterations, whose collectives have numbers of their own."""
    found: list[Row] = []
    begun = 0
    for _ in range(3):
        first = begun
        for row in rows:
            if row[0] == COLLECTIVE:
                found.append((*row, begun))
                begun += 1
            elif row[0] == WAIT:
                found.append((*row[:2], first + int(str(row[2]))))
            else:
                found.append(row)
        found.append((STEP, 0))
    return found


def seconds_in_all(
    rows: Sequence[Row],
    *,
    op: float = MS,
    launch: float = 0.0,
    link: Link = LINK,
    slowdown: float = 1.0,
) -> tuple[float, int]:
    """Return how long the job takes, and the number of its iterations."""
    made = recording(numbered(rows), groups=GROUPS)
    script = script_job(
        [made],
        [durations(made, op)],
        switch(2, 0, link),
        host=HostCosts(launch, launch),
        slowdown=slowdown,
        algorithm="ring",
    )
    return replay_job(script.job).makespan, len(script.ends[0])


def of_link(call: Call) -> float:
    """Return the seconds of a ring of two: an all-reduce sends two halves, a gather one."""
    return call.size / 1e6 if call.kind == "all_reduce" else call.size / 2e6


@given(requests, st.sampled_from([0.0, 0.3 * MS]))
def test_a_time_is_between_the_busiest_lane_and_the_sum_of_all(rows: list, launch: float) -> None:
    ops = [row for row in rows if row[0] == OP]
    calls = [row[2] for row in rows if row[0] == COLLECTIVE]
    streams = [sum(row[1] == stream for row in ops) * MS for stream in range(3)]
    links = [sum(of_link(call) for call in calls if call.group == group) for group in GROUPS]
    host = (len(ops) + len(calls)) * launch
    time, count = seconds_in_all(rows, launch=launch)
    most = sum(streams) + sum(links) + host
    assert count * max([*streams, *links, host]) - 1e-9 <= time <= count * most + 1e-9


@given(requests, st.sampled_from([0.0, 0.3 * MS]))
def test_twice_as_fast_hardware_makes_nothing_slower(rows: list, launch: float) -> None:
    time, _ = seconds_in_all(rows, launch=launch)
    for faster in (
        {"op": MS / 2, "launch": launch},
        {"launch": launch / 2},
        {"link": Link(bandwidth=2e6), "launch": launch},
    ):
        assert seconds_in_all(rows, **faster)[0] <= time + 1e-9
    slowed, _ = seconds_in_all(rows, launch=launch, slowdown=1.2)
    assert time - 1e-9 <= slowed <= 1.2 * time + 1e-9
