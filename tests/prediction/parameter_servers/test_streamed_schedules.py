"""Schedules of steps op by op: against plain Python, and what must hold of all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layered_workload import layered_workload
from plain_systems import plain_system
from random_workloads import Case, cases, whole_numbers
from steps_schedule import schedule_literally

from paracosm.simulation.rules import Rule, asgd, backup, fedbuff, softsync, ssgd, ssp
from paracosm.simulation.schedule import Schedule, join_schedules
from paracosm.simulation.scheduling import stream_schedule
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import DOWNLINK, SERVER, System, Workload

PRECISION = 1e-9
"""Seconds, and relative: the two add up the same times in another order."""


@st.composite
def rules(draw: st.DrawFn, workers: int) -> Rule:
    return draw(
        st.one_of(
            st.just(asgd()),
            st.just(ssgd(workers)),
            st.integers(0, 2).map(ssp),
            st.integers(1, workers).map(lambda n: softsync(workers, n)),
            st.integers(1, 4).map(fedbuff),
            st.integers(0, workers - 1).map(lambda b: backup(workers, b)),
        )
    )


def some_tensors(workload: Workload, rng: np.random.Generator) -> list[int]:
    """Return the tensor of each op: a transfer reads it, and an update that waits for that one."""
    after = np.zeros((workload.ops, workload.ops), bool)
    for op in range(workload.ops):
        first, last = workload.first_dependent[op : op + 2]
        after[op, workload.dependents[first:last]] = True
    for _ in range(workload.ops):
        after |= after @ after
    tensor = [-1] * workload.ops
    reads = np.flatnonzero(workload.resource == DOWNLINK)
    left = set(np.flatnonzero(workload.resource == SERVER).tolist())
    for number, read in enumerate(rng.permutation(reads).tolist()):
        tensor[read] = number
        if mine := sorted(op for op in left if after[read, op]):
            update = int(rng.choice(mine))
            tensor[update] = number
            left.remove(update)
    return tensor


def whole(case: Case, rule: Rule, tensor: list[int], block: int = 1 << 16) -> Schedule:
    return join_schedules(
        stream_schedule(case.workload, case.system, rule, case.drawn, tensor, block=block)
    )


@settings(deadline=None, max_examples=250)
@given(cases(), st.data())
def test_any_rule_on_any_job(case: Case, data: st.DataObject) -> None:
    workers = case.system.workers
    rule = data.draw(rules(workers))
    tensor = some_tensors(case.workload, np.random.default_rng(workers))
    if max(tensor) < 0:
        return
    agree(case, rule, tensor)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 2), st.data())
def test_rules_where_much_is_at_one_time(seed: int, workers: int, data: st.DataObject) -> None:
    """Whole numbers and shares of 1 and 1/2: reads and updates of two workers often coincide."""
    rng = np.random.default_rng(seed)
    workload = whole_numbers(rng)
    tensor = some_tensors(workload, rng)
    if max(tensor) >= 0:
        drawn = rng.integers(workload.steps, size=(workers, 4))
        case = Case(workload, plain_system(workers, 1, 1.0), drawn)
        agree(case, data.draw(rules(workers)), tensor)


def agree(case: Case, rule: Rule, tensor: list[int]) -> None:
    got = whole(case, rule, tensor)
    reads, updates = schedule_literally(case.workload, case.system, rule, case.drawn, tensor)
    for found, expected, names in (
        (got.reads, reads, ["worker", "step", "tensor", "version"]),
        (got.updates, updates, ["worker", "step", "tensor", "version", "read"]),
    ):
        assert set(found[names].tolist()) == {row[1:] for row in expected}
        assert len(found) == len(expected)
        assert (np.diff(found["time"]) >= 0).all()
        at = {row[1:]: row[0] for row in expected}
        assert found["time"] / 1e12 == pytest.approx(
            [at[row] for row in found[names].tolist()], rel=PRECISION, abs=PRECISION
        )


@st.composite
def layered(draw: st.DrawFn) -> tuple[Workload, System, np.ndarray, list[int]]:
    """Return layers on a network that all share: reads and updates of different workers overlap."""
    seed = draw(st.integers(0, 2**32))
    layers, workers, steps = (draw(st.integers(1, most)) for most in (4, 6, 30))
    servers = draw(st.integers(1, 2))
    workload = layered_workload(layers, 1, 5, seed, servers)
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, draw(st.sampled_from([0.0, 5.0])), workers)
    system = plain_system(workers, servers, 20.0, start=start)
    tensor = np.full(workload.ops, -1)
    for resource in (DOWNLINK, SERVER):
        mine = np.flatnonzero(workload.resource == resource)
        tensor[mine] = np.arange(layers) if resource == DOWNLINK else np.arange(layers)[::-1]
    return workload, system, rng.integers(5, size=(workers, steps)), tensor.tolist()


@settings(deadline=None, max_examples=100)
@given(layered(), st.data())
def test_what_holds_of_every_schedule(
    job: tuple[Workload, System, np.ndarray, list[int]], data: st.DataObject
) -> None:
    workload, system, drawn, tensor = job
    workers, tensors = system.workers, max(tensor) + 1
    rule = data.draw(rules(workers))
    case = Case(workload, system, drawn)
    got = whole(case, rule, tensor)

    again = whole(case, rule, tensor, data.draw(st.sampled_from([1, 7, 100])))
    for rows in ("reads", "updates", "steps"):
        assert getattr(got, rows).tolist() == getattr(again, rows).tolist()
    assert (got.end, got.dropped) == (again.end, again.dropped)

    read = {row[1:4]: row for row in got.reads.tolist()}
    assert len(read) == len(got.reads)
    for time, worker, step, which, version, seen in got.updates.tolist():
        read_at, *_, read_version = read[worker, step, which]
        assert read_at <= time
        assert seen == read_version < version
    made = {"each": None, "all": workers, "gathered": rule.pushes}[rule.answers]
    for which in range(tensors):
        own = got.updates[got.updates["tensor"] == which]
        count = len(own) // rule.pushes
        assert own["version"].tolist() == np.repeat(np.arange(1, count + 1), rule.pushes).tolist()
        if made is not None:
            assert (own["version"] - 1 - own["read"] == 0).all()

    accepted = got.steps[got.steps["accepted"] == 1]
    applied = np.zeros((tensors, *drawn.shape), np.int64)
    np.add.at(applied, tuple(got.updates[name] for name in ("tensor", "worker", "step")), 1)
    assert applied.max(initial=0) <= 1
    taken = applied[:, accepted["worker"], accepted["step"]].sum(axis=1)
    left = np.zeros_like(taken) if rule.drops_late else len(accepted) % rule.pushes
    if rule.answers != "gathered":
        assert (len(accepted) - taken == left).all()
    assert got.dropped == tensors * int((got.steps["accepted"] == 0).sum())

    if rule.slack is not None:
        ended = np.sort(got.steps[["end", "worker"]], order="end")
        for begin, step in got.steps[["begin", "step"]].tolist():
            before = ended["worker"][ended["end"] <= begin]
            assert np.bincount(before, minlength=workers).min() >= step - rule.slack


@pytest.mark.parametrize("rule", [asgd(), ssp(1), ssgd(3), backup(3, 1)])
def test_steps_are_those_of_the_simulation(rule: Rule) -> None:
    """With the same waiting, steps begin and end as `simulate` has them."""
    workload = layered_workload(3, 2, 5, seed=1)
    waits = None if rule.answers == "each" else 3 - rule.pushes
    system = replace(plain_system(3, 1, 50.0), backup=waits, slack=rule.slack)
    drawn = np.random.default_rng(1).integers(5, size=(3, 40))
    tensor = [-1] * workload.ops
    tensor[0], tensor[int(np.flatnonzero(workload.resource == SERVER)[-1])] = 0, 0
    expected = simulate(workload, system, drawn)
    got = whole(Case(workload, system, drawn), rule, tensor)
    for name, seconds in (("begin", expected.step_begin), ("end", expected.step_end)):
        found = np.full(drawn.shape, np.nan)
        found[got.steps["worker"], got.steps["step"]] = got.steps[name] / 1e12
        same = ~np.isnan(expected.step_end)
        np.testing.assert_allclose(found[same], seconds[same], rtol=1e-12)
        assert same.sum() == len(got.steps)
