"""Schedules with failures: by hand, against a plain program, and against Daly's formula."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat

import numpy as np
import pytest
from failing_job import failing_job
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults import expected_makespan
from paracosm.simulation.rollback import Block, Checkpoint, Restore, with_rollbacks
from paracosm.simulation.schedule import READ, STEP, UPDATE, Schedule

SECOND = 10**12


def iterations(
    seconds: float, count: int, workers: int = 1, tensors: int = 1, block: int = 1000
) -> Iterator[Schedule]:
    """Yield a synchronous job: read all, compute, update all; the next iteration begins then."""
    length = np.int64(round(seconds * SECOND))

    def rows(numbers: range, dtype: np.dtype[np.void], tensors: int) -> np.ndarray:
        found = np.zeros((len(numbers), workers, tensors), dtype)
        found["step"] = np.array(numbers)[:, None, None]
        found["worker"] = np.arange(workers)[:, None]
        if "tensor" in (dtype.names or ()):
            found["tensor"] = np.arange(tensors)
        return found.ravel()

    for first in range(0, count, block):
        last = min(first + block, count)
        # What is read as an iteration ends belongs to that instant.
        reads = rows(range(first + (first > 0), min(last + 1, count)), READ, tensors)
        reads["time"], reads["version"] = reads["step"] * length, reads["step"]
        updates = rows(range(first, last), UPDATE, tensors)
        updates["time"], updates["read"] = (updates["step"] + 1) * length, updates["step"]
        updates["version"] = updates["step"] + 1
        steps = rows(range(first, last), STEP, 1)
        steps["begin"], steps["end"] = steps["step"] * length, (steps["step"] + 1) * length
        yield Schedule(reads, updates, steps, int(last * length), 0, {})


def lasting(events: Iterable[Block], count: int) -> tuple[list[int], list[Block]]:
    """Return when the versions that last were made, up to the last one, and the marks by then."""
    times: dict[int, int] = {}
    saved: dict[int, int] = {}
    marks: list[Block] = []
    for event in events:
        if isinstance(event, Checkpoint):
            saved = times.copy()
        elif isinstance(event, Restore):
            times = saved.copy()
        else:
            rows = event.updates
            times |= dict(zip(rows["version"].tolist(), rows["time"].tolist(), strict=True))
            if count in times:
                return [times[version] for version in range(1, count + 1)], marks
            continue
        marks.append(event)
    raise AssertionError("the job ended before its last update")


def test_checkpoints_and_a_failure_by_hand() -> None:
    """Iterations of 2 s, a checkpoint of 1 s every 4 s of work, a failure at 12 s, restart 3 s.

    0 4 | 5 9 | 10 12 fails with 2 s of work after the checkpoint, 15 19 | 20 ...
    """
    events = list(
        with_rollbacks(
            lambda life: iterations(2.0, 4 if life else 100),
            [12.0],
            workers=1,
            tensors=1,
            restart=3.0,
            interval=4.0,
            cost=1.0,
        )
    )
    blocks = [event for event in events if isinstance(event, Schedule)]
    marks = [event for event in events if not isinstance(event, Schedule)]
    assert marks == [
        Checkpoint(4 * SECOND, 5 * SECOND),
        Checkpoint(9 * SECOND, 10 * SECOND),
        Restore(12 * SECOND, 15 * SECOND, 2 * SECOND, 0, 1),
        Checkpoint(19 * SECOND, 20 * SECOND),
        Checkpoint(24 * SECOND, 25 * SECOND),
    ]
    updates = np.concatenate([block.updates for block in blocks])
    assert (updates["time"] // SECOND).tolist() == [2, 4, 7, 9, 12, 17, 19, 22, 24]
    assert updates["version"].tolist() == [1, 2, 3, 4, 5, 5, 6, 7, 8]
    assert updates["read"].tolist() == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    # Step 5 had begun when the job failed; it is never done, and its number not used again.
    assert updates["step"].tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    reads = np.concatenate([block.reads for block in blocks])
    assert reads["step"].tolist() == list(range(10))
    assert (reads["time"] // SECOND).tolist() == [0, 2, 4, 7, 9, 12, 15, 17, 19, 22]
    steps = np.concatenate([block.steps for block in blocks])
    assert (steps["begin"] // SECOND).tolist() == [0, 2, 4, 7, 9, 15, 17, 19, 22]
    assert (steps["end"] // SECOND).tolist() == [2, 4, 7, 9, 12, 17, 19, 22, 24]


@pytest.mark.parametrize(
    ("failures", "marks"),
    [
        # While the first checkpoint is saved, half a second in: all of it is lost.
        ([4.5], [Restore(4_500_000_000_000, 7_500_000_000_000, 4 * SECOND, SECOND // 2, 1)]),
        # While the job restarts after 1 s: it begins to restart anew.
        ([1.0, 2.0], [Restore(SECOND, 5 * SECOND, SECOND, 0, 2)]),
        # As it has restarted: what it lost is nothing.
        (
            [1.0, 4.0],
            [Restore(SECOND, 4 * SECOND, SECOND, 0, 1), Restore(4 * SECOND, 7 * SECOND, 0, 0, 1)],
        ),
    ],
)
def test_failures_at_bad_moments(failures: list[float], marks: list[Restore]) -> None:
    events = with_rollbacks(
        lambda life: iterations(2.0, 10),
        failures,
        workers=1,
        tensors=1,
        restart=3.0,
        interval=4.0,
        cost=1.0,
    )
    assert [event for event in events if isinstance(event, Restore)] == marks


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 4),
    st.lists(st.integers(1, 12), max_size=5),
    st.integers(1, 7),
)
def test_against_a_plain_program(
    iteration: int,
    count: int,
    interval: int,
    cost: int,
    restart: int,
    gaps: list[int],
    block: int,
) -> None:
    failures = list(accumulate(gaps))
    events = with_rollbacks(
        lambda life: iterations(iteration, count + 1, block=block),
        failures,
        workers=1,
        tensors=1,
        restart=restart,
        interval=interval,
        cost=cost,
    )
    times, marks = lasting(events, count)
    ends, wasted = failing_job(iteration, count, interval, cost, restart, failures)
    assert times == [end * SECOND for end in ends]
    found = [(mark.end, mark.lost, mark.saving) for mark in marks if isinstance(mark, Restore)]
    assert found == [tuple(ticks * SECOND for ticks in each) for each in wasted]


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.lists(st.floats(0.1, 9), max_size=4))
def test_versions_go_back_to_the_checkpoint_and_steps_on(
    workers: int, tensors: int, gaps: list[float]
) -> None:
    """Of every tensor, and of every worker."""
    events = with_rollbacks(
        lambda life: iterations(1.0, 20, workers, tensors, block=3),
        list(accumulate(gaps)),
        workers=workers,
        tensors=tensors,
        restart=0.5,
        interval=2.0,
        cost=0.25,
        in_step=True,
    )
    versions, saved, now = [0] * tensors, [0] * tensors, 0
    seen: set[tuple[int, int, int]] = set()
    for event in events:
        if isinstance(event, Schedule):
            for at, worker, step, tensor, version in event.reads.tolist():
                known = event.updates[event.updates["time"] <= at]
                known = known[known["tensor"] == tensor]["version"]
                assert version == (known[-1] if len(known) else versions[tensor])
                assert (worker, step, tensor) not in seen
                seen.add((worker, step, tensor))
            for at, _, _, tensor, version, read in event.updates.tolist():
                assert now <= at
                assert version in (versions[tensor], versions[tensor] + 1)
                assert read == version - 1
                versions[tensor], now = version, at
        elif isinstance(event, Checkpoint):
            assert len(set(versions)) == 1
            saved, now = list(versions), event.end
        else:
            versions, now = list(saved), event.end


def test_asynchronous_checkpoints_do_not_wait_for_each_other_tensor() -> None:
    """Tensor 1 is updated half a second after tensor 0: a checkpoint due at 1 s comes between."""
    (block,) = iterations(1.0, 4, tensors=2)
    late = block.updates["tensor"] == 1
    block.updates["time"][late] += SECOND // 2
    order = np.argsort(block.updates["time"], kind="stable")
    shifted = Schedule(
        block.reads, block.updates[order], block.steps[:0], block.end + SECOND // 2, 0, {}
    )

    def first_checkpoint(in_step: bool) -> Checkpoint:
        events = with_rollbacks(
            lambda life: [shifted],
            [],
            workers=1,
            tensors=2,
            restart=0.0,
            interval=1.0,
            cost=0.1,
            in_step=in_step,
        )
        return next(event for event in events if isinstance(event, Checkpoint))

    assert first_checkpoint(in_step=False).begin == SECOND
    assert first_checkpoint(in_step=True).begin == SECOND + SECOND // 2


def test_no_failures_and_no_checkpoints_change_nothing() -> None:
    events = list(
        with_rollbacks(lambda life: iterations(1.0, 5, 2, 3), [], workers=2, tensors=3, restart=1.0)
    )
    (found,), (wanted,) = events, iterations(1.0, 5, 2, 3)
    assert isinstance(found, Schedule)
    for name in ("reads", "updates", "steps"):
        assert (getattr(found, name) == getattr(wanted, name)).all()
    assert found.end == wanted.end


def makespans(
    count: int, interval: float, cost: float, restart: float, mtbf: float, runs: int
) -> Sequence[float]:
    """Return seconds until `count` checkpoints of one iteration each are saved, of several runs."""
    found = []
    for seed in range(runs):
        gaps = np.random.default_rng(seed).exponential(mtbf, size=2_000)
        events = with_rollbacks(
            lambda life: iterations(interval, count + 1),
            np.cumsum(gaps).tolist(),
            workers=1,
            tensors=1,
            restart=restart,
            interval=interval,
            cost=cost,
        )
        saves = (event for event in events if isinstance(event, Checkpoint))
        *_, last = (save for save, _ in zip(saves, repeat(None, count), strict=False))
        found.append(last.end / SECOND)
    return found


@pytest.mark.parametrize(
    ("interval", "cost", "restart", "mtbf"),
    [
        (10.0, 1.0, 2.0, 100.0),
        pytest.param(10.0, 5.0, 10.0, 20.0, marks=pytest.mark.slow),
        pytest.param(60.0, 1.0, 0.0, 30.0, marks=pytest.mark.slow),
    ],
)
def test_makespans_agree_with_dalys_expectation(
    interval: float, cost: float, restart: float, mtbf: float
) -> None:
    """Within three standard errors of 100 runs of 20 segments."""
    found = np.array(makespans(20, interval, cost, restart, mtbf, runs=100))
    expected = expected_makespan(20 * interval, interval, cost, restart, mtbf)
    error = found.std(ddof=1) / len(found) ** 0.5
    assert error < 0.06 * expected
    assert found.mean() == pytest.approx(expected, abs=3 * error)


def test_a_job_that_cannot_get_on_says_so() -> None:
    events = with_rollbacks(
        lambda life: iterations(2e4, 5),
        (number * 1e4 for number in range(1, 10**9)),
        workers=1,
        tensors=1,
        restart=1e6,
    )
    with pytest.raises(InputError, match="fails too often"):
        list(events)


@pytest.mark.parametrize("restart", [1e-3, 1e2])  # shorter and longer than what is between failures
def test_a_job_that_fails_before_anything_is_done_says_so(restart: float) -> None:
    events = with_rollbacks(
        lambda life: iterations(20, 5),
        (0.01 * number for number in range(1, 10**9)),
        workers=1,
        tensors=1,
        restart=restart,
    )
    with pytest.raises(InputError, match="leave nothing done"):
        list(events)
