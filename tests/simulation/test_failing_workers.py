"""Workers that fail while steps are simulated: by hand, one by one in plain Python, and by laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedules_of_steps import MB, steps_of

from paracosm.cluster import Link, star
from paracosm.rng import FailureStream, stream_keys
from paracosm.simulation.rules import Rule, asgd, backup, softsync, ssgd, ssp
from paracosm.simulation.schedule import ROWS, Schedule, join_schedules, read_schedule
from paracosm.simulation.scheduling import stream_schedule
from paracosm.simulation.system import DOWNLINK, SERVER, System, Workload, cluster_routes
from paracosm.timing.compiled import uniform

SECOND = 10**12
MTBF = 100.0
NEVER = (50.0, 1e9)


def key_of(first: tuple[float, float]) -> int:
    """Return the key of a worker that fails first between two instants, and then not for 50 s."""
    for key in count():
        one, two = (-log(uniform(np.uint64(key), index)) * MTBF for index in (0, 1))
        if first[0] <= one < first[1] and two > 50:
            return key
    raise AssertionError


def schedule(
    workload: Workload,
    workers: int,
    steps: int,
    *,
    keys: Sequence[int] | np.ndarray,
    restart: float,
    rule: Rule | None = None,
    bandwidth: float = np.inf,
    tensors: int = 1,
    mtbf: float = MTBF,
    cores: int = 0,
    start: Sequence[float] = (),
    block: int = 65_536,
) -> Schedule:
    system = System(
        routes=cluster_routes(star(workers, 1, Link(bandwidth=bandwidth, sharing="fair"))),
        speed=np.ones(workers),
        start=np.array(start) if start else np.zeros(workers),
        cores=cores,
        mtbf=mtbf,
        restart=restart,
        failure_keys=np.array(keys, np.uint64),
    )
    drawn = np.arange(workers * steps).reshape(workers, steps) % workload.steps
    use = (workload.resource == DOWNLINK) | (workload.resource == SERVER)
    tensor = np.where(use, np.tile(np.arange(tensors), 4), -1).tolist()
    return join_schedules(
        stream_schedule(workload, system, rule or asgd(), drawn, tensor, block=block)
    )


def times_of(found: Schedule, worker: int, what: str = "updates") -> list[float]:
    rows = getattr(found, what)
    return (rows["time"][rows["worker"] == worker] / SECOND).tolist()


def lost(found: Schedule) -> tuple[int, float]:
    """Return the worker and the instant of the one step that was lost."""
    (row,) = found.steps[found.steps["accepted"] == 0]
    return int(row["worker"]), float(row["end"]) / SECOND


def test_who_is_left_has_the_link_for_itself() -> None:
    """Together pulls take 0.2 s, computing 0.1 s, pushes 0.2 s; alone 0.1 s each."""
    keys = [key_of(NEVER), key_of((0.2, 0.3))]
    found = schedule(steps_of(np.array([0.1])), 2, 4, keys=keys, restart=10.0, bandwidth=1.0 * MB)
    assert times_of(found, 0) == [0.4, 0.7, 1.0, 1.3]
    worker, fell = lost(found)
    assert worker == 1
    assert 0.2 < fell < 0.3
    again = times_of(found, 1, "reads")
    assert again[1] == pytest.approx(fell + 10, abs=1e-12)
    assert times_of(found, 1)[0] == pytest.approx(fell + 10.3, abs=1e-11)
    assert (found.failures["time"] / SECOND).tolist() == [fell]
    assert found.dropped == 0


def test_failures_are_read_as_they_were_written(tmp_path: Path) -> None:
    keys = [key_of(NEVER), key_of((0.2, 0.3))]
    found = schedule(steps_of(np.array([0.1])), 2, 4, keys=keys, restart=10.0)
    found.write(tmp_path / "schedule.parquet")
    again = read_schedule(tmp_path / "schedule.parquet")
    assert len(again.failures) == 1
    assert all((getattr(again, name) == getattr(found, name)).all() for name in ROWS)


def test_bytes_in_the_network_arrive_all_the_same() -> None:
    """Worker 1 fails while both push, and is back before that ends: it pulls, and waits to push."""
    keys = [key_of(NEVER), key_of((0.31, 0.32))]
    found = schedule(steps_of(np.array([0.1])), 2, 2, keys=keys, restart=0.01, bandwidth=1.0 * MB)
    _, fell = lost(found)
    assert times_of(found, 0)[0] == 0.5
    assert times_of(found, 1, "reads") == [0.0, pytest.approx(fell + 0.01)]
    # Worker 1 pulls alone until 0.5, by when it has its 0.1 MB, and then computes; worker 0 pulls
    # until 0.6 and computes until 0.7. Worker 1 pushes alone from 0.1 s after its pull.
    assert times_of(found, 1) == pytest.approx([fell + 0.31], abs=1e-11)
    assert times_of(found, 0)[1] == pytest.approx(0.8, abs=1e-12)


@pytest.mark.parametrize(("fails", "stays", "first"), [(0, 1, 0.2), (1, 0, 0.3)])
def test_the_core_of_a_server_is_given_back(fails: int, stays: int, first: float) -> None:
    """Updates of 0.2 s on one core: worker 0's from 0.1 s on, worker 1's behind it."""
    work = steps_of(np.array([0.1]))
    work = replace(work, seconds=np.where(work.resource == SERVER, 0.2, work.seconds))
    keys = [0, 0]
    keys[fails], keys[stays] = key_of((0.19, 0.2)), key_of(NEVER)
    found = schedule(work, 2, 3, keys=keys, restart=20.0, cores=1)
    worker, fell = lost(found)
    assert worker == fails
    begin = fell if fails == 0 else 0.1
    assert times_of(found, stays) == pytest.approx([begin + 0.2, begin + 0.5, begin + 0.8])
    assert len(times_of(found, fails)) == 2


def test_others_wait_within_their_slack() -> None:
    """Steps of 1 s, slack 1: worker 0 ends two, and waits for the first of worker 1."""
    keys = [key_of(NEVER), key_of((0.4, 0.6))]
    found = schedule(steps_of(np.array([1.0])), 2, 4, keys=keys, restart=10.0, rule=ssp(1))
    _, fell = lost(found)
    assert times_of(found, 0) == pytest.approx([1.0, 2.0, fell + 12, fell + 13], abs=1e-11)
    assert times_of(found, 1) == pytest.approx([fell + 11, fell + 12, fell + 13], abs=1e-11)


def test_who_waits_between_steps_loses_none() -> None:
    """A gap of 1 s after each step of 1 s: who fails in it begins the next step when it is back."""
    work = replace(steps_of(np.array([1.0])), gap=np.array([1.0]))
    keys = [key_of((1.2, 1.8))]
    found = schedule(work, 1, 3, keys=keys, restart=5.0)
    assert found.steps["accepted"].all()
    fell = -log(uniform(np.uint64(keys[0]), 0)) * MTBF
    begins = (found.steps["begin"] / SECOND).tolist()
    assert begins == pytest.approx([0.0, fell + 5, fell + 7], abs=1e-11)


def plain_steps(
    key: int, start: float, durations: Sequence[float], gap: float, mtbf: float, restart: float
) -> Iterator[tuple[float, float, int]]:
    """Yield begin, end and whether it counts of each step of a worker that nobody disturbs."""
    drawn = count()
    now, back = start, 0.0
    fails = -log(uniform(np.uint64(key), next(drawn))) * mtbf
    for duration in durations:
        while fails < now:
            back = fails + restart
            fails = back - log(uniform(np.uint64(key), next(drawn))) * mtbf
            now = max(now, back)
        if fails < now + duration:
            yield now, fails, 0
            now = fails + restart
            fails = now - log(uniform(np.uint64(key), next(drawn))) * mtbf
        else:
            yield now, now + duration, 1
            now += duration + gap


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.floats(0.1, 20),
    st.floats(0, 5),
    st.floats(0, 1),
    st.integers(1, 3),
)
def test_workers_that_share_nothing_fail_each_by_itself(
    seed: int, workers: int, mtbf: float, restart: float, gap: float, tensors: int
) -> None:
    rng = np.random.default_rng(seed)
    compute = rng.uniform(0.1, 2.0, size=7)
    start = rng.uniform(0, 3, size=workers).tolist()
    keys = stream_keys(seed, FailureStream.WORKERS, workers)
    work = replace(steps_of(compute, tensors), gap=np.full(7, gap))
    found = schedule(
        work, workers, 12, keys=keys, restart=restart, mtbf=mtbf, tensors=tensors, start=start
    )
    for worker in range(workers):
        steps = [tensors * compute[(worker * 12 + step) % 7] for step in range(12)]
        rows = found.steps[found.steps["worker"] == worker]
        wanted = list(plain_steps(int(keys[worker]), start[worker], steps, gap, mtbf, restart))
        assert rows["begin"] / SECOND == pytest.approx([b for b, _, _ in wanted], abs=1e-9)
        assert rows["end"] / SECOND == pytest.approx([e for _, e, _ in wanted], abs=1e-9)
        assert rows["accepted"].tolist() == [accepted for _, _, accepted in wanted]


RULES = st.one_of(
    st.just(asgd()),
    st.integers(0, 3).map(ssp),
    st.just(softsync(4, 2)),
    st.integers(1, 2).map(lambda b: backup(4, b)),
)


@settings(deadline=None)
@given(st.integers(0, 2**32), RULES, st.integers(1, 3), st.floats(0.2, 20), st.integers(0, 2))
def test_laws(seed: int, rule: Rule, tensors: int, mtbf: float, cores: int) -> None:
    """Of four workers that share a link."""
    rng = np.random.default_rng(seed)
    work = steps_of(rng.uniform(0.01, 0.4, size=5), tensors)
    work = replace(
        work, seconds=np.where(work.resource == SERVER, rng.uniform(0, 0.1), work.seconds)
    )
    keys = stream_keys(seed, FailureStream.WORKERS, 4)
    restart = float(rng.uniform(0, 2))

    def played(block: int) -> Schedule:
        return schedule(
            *(work, 4, 10),
            keys=keys,
            restart=restart,
            rule=rule,
            bandwidth=1.0 * MB,
            tensors=tensors,
            mtbf=mtbf,
            cores=cores,
            block=block,
        )

    found = played(65_536)
    for name in ROWS:
        assert (getattr(found, name) == getattr(played(7), name)).all()
    for tensor in range(tensors):
        versions = found.updates["version"][found.updates["tensor"] == tensor]
        assert (np.unique(versions) == np.arange(1, versions.max(initial=0) + 1)).all()
    updated = dict.fromkeys(found.steps[["worker", "step"]].tolist(), 0)
    for worker, step in found.updates[["worker", "step"]].tolist():
        if (worker, step) in updated:
            updated[worker, step] += 1
    for worker, step, begin, end, accepted in found.steps.tolist():
        own = updated[worker, step]
        assert own <= tensors
        if not rule.drops_late and rule.pushes == 1:
            assert (own == tensors) == bool(accepted)
        # What a step does, it does while it lasts, or when others end its iteration.
        reads = found.reads[(found.reads["worker"] == worker) & (found.reads["step"] == step)]
        assert ((begin <= reads["time"]) & (reads["time"] <= end)).all()
    for worker in range(4):
        rows = found.steps[found.steps["worker"] == worker]
        assert (rows["begin"][1:] >= rows["end"][:-1]).all()
        if not rule.drops_late:
            after = np.flatnonzero(rows["accepted"][:-1] == 0) + 1
            away = rows["begin"][after] - rows["end"][after - 1]
            assert (away >= round(restart * SECOND)).all()
    if rule.slack is not None:
        for instant in found.steps["begin"].tolist():
            ended = found.steps[(found.steps["end"] <= instant) & (found.steps["accepted"] == 1)]
            counts = np.bincount(ended["worker"], minlength=4)
            for worker in found.steps["worker"][found.steps["begin"] == instant].tolist():
                assert counts[worker] - counts.min() <= rule.slack


def test_nobody_fails_without_keys_and_synchronous_workers_never_alone() -> None:
    with pytest.raises(ValueError, match="stops when one fails"):
        schedule(steps_of(np.array([1.0])), 2, 4, keys=[1, 2], restart=1.0, rule=ssgd(2))
    found = schedule(steps_of(np.array([1.0])), 2, 4, keys=[], restart=1.0, mtbf=1e-3)
    assert not len(found.failures)
    assert found.steps["accepted"].all()
