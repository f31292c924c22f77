"""Runs as they are kept: what is written says everything about a schedule."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_training import RecordedRun, load_run
from real_training.recorded import EVENT, recorded_schedule

from paracosm.errors import InputError

MICROSECOND = 10**6  # picoseconds


def test_versions_count_the_updates_before_by_hand() -> None:
    events = [(0, 0, -1), (1, 1, -1), (5, 0, 1), (7, 1, 1), (8, 1, 0), (9, 0, 0), (11, 0, -1)]
    steps = [(np.array([0]), np.array([10])), (np.array([1]), np.array([9]))]
    got = recorded_schedule(np.array(events, EVENT), steps, ["a", "b"], 1, 1, 0)
    assert got.reads[-2:].tolist() == [(11 * MICROSECOND, 0, 1, t, 2) for t in (0, 1)]
    versions = got.updates[["time", "worker", "step", "tensor", "version", "read"]].tolist()
    assert versions == [
        (5 * MICROSECOND, 0, 0, 1, 1, 0),
        (7 * MICROSECOND, 1, 0, 1, 2, 0),
        (8 * MICROSECOND, 1, 0, 0, 1, 0),
        (9 * MICROSECOND, 0, 0, 0, 2, 0),
    ]
    assert got.staleness.tolist() == [0, 1, 0, 1]
    assert got.steps.tolist() == [
        (1, 0, 1 * MICROSECOND, 9 * MICROSECOND, 1),
        (0, 0, 0, 10 * MICROSECOND, 1),
    ]


@st.composite
def runs(draw: st.DrawFn) -> RecordedRun:
    """Asynchronous steps of any order and pace, on one or two servers."""
    workers, servers = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    tensors, steps = draw(st.integers(servers, 4)), draw(st.integers(1, 4))
    queues = [
        [e for _ in range(steps) for e in (*range(-servers, 0), *range(tensors))]
        for _ in range(workers)
    ]
    rows, now = [], 0
    bounds: list[tuple[list[int], list[int]]] = [([], []) for _ in range(workers)]
    while any(queues):
        worker = draw(st.sampled_from([w for w in range(workers) if queues[w]]))
        now += draw(st.integers(1, 10**6))
        event = queues[worker].pop(0)
        rows.append((now, worker, event))
        if event == -servers:
            bounds[worker][0].append(now - draw(st.integers(0, 5)))
        if event == tensors - 1:
            bounds[worker][1].append(now + draw(st.integers(0, 5)))
    begins_and_ends = [(np.array(begin), np.array(end)) for begin, end in bounds]
    names = [f"tensor {number}" for number in range(tensors)]
    schedule = recorded_schedule(
        np.array(rows, EVENT), begins_and_ends, names, servers, 1, draw(st.integers(0, 2))
    )
    losses = tuple(np.arange(steps, dtype=np.float32) + worker for worker in range(workers))
    times = np.array([3, 10**7]) * MICROSECOND
    facts = {"workers": workers, "servers": servers, "synchronous": False}
    metrics = {"loss": np.array([2.0, 1.0], np.float32)}
    return RecordedRun(schedule, losses, times, np.zeros((2, 5), np.float32), facts, metrics)


@settings(deadline=None, max_examples=50)
@given(run=runs())
def test_a_run_is_read_as_it_was_written(run: RecordedRun) -> None:
    with TemporaryDirectory() as folder:
        run.save(Path(folder))
        again = load_run(Path(folder))
    for name in ("reads", "updates", "steps"):
        assert np.array_equal(getattr(again.schedule, name), getattr(run.schedule, name))
    for name in ("end", "dropped", "tensors"):
        assert getattr(again.schedule, name) == getattr(run.schedule, name)
    for one, other in zip(again.losses, run.losses, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(again.snapshot_times, run.snapshot_times)
    assert again.metrics["loss"].tolist() == [2.0, 1.0]
    assert again.facts == run.facts


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recorded run: it has no run.json"):
        load_run(tmp_path)
