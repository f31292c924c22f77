"""Who comes last: by hand, over steps; the same of traces that are played in parts."""

from __future__ import annotations

from pathlib import Path

import large_traces
import numpy as np
import pytest
from hand_made import all_reduce, kernel, launch, step, write

from paracosm.replays import parts as traced_parts
from paracosm.replays.arrivals import arrivals_of, joined_arrivals, lateness_of
from paracosm.replays.job import read_job
from paracosm.replays.outcome import traced_times
from paracosm.replays.run import Replays, replay_traces, summarise_replays
from paracosm.timeline.kineto import rows


def three_ranks(folder: Path) -> list[Path]:
    """Write two steps of three ranks, each with two all-reduces.

    In step 1 they come at (10, 20, 30) and (50, 50, 56), in step 2 at (110, 140, 110) and (150,
    150, 168); each takes 4 us after that.
    """
    arrivals = ((10, 20, 30), (50, 50, 56), (110, 140, 110), (150, 150, 168))
    paths = []
    for rank in range(3):
        shown = [step(1, 0, 100), step(2, 100, 200)]
        for number, came in enumerate(arrivals, 1):
            begin = came[rank] - 5
            shown += [
                launch(number, begin, begin + 2),
                all_reduce(number, came[rank], max(came) + 4),
            ]
        paths.append(write(folder, shown, rank, 3))
    return paths


def test_ranks_steps_and_collectives_by_who_comes_last(tmp_path: Path) -> None:
    traced = read_job(three_ranks(tmp_path))
    arrivals = arrivals_of(traced, traced_times(traced).arrive)
    # The others wait 20 and 10, 6 and 6, 30 and 30, 18 and 18 us.
    assert arrivals.last.tolist() == [2, 2, 1, 2]
    assert 1e6 * arrivals.late == pytest.approx([15, 6, 30, 18])
    assert arrivals.step.tolist() == [1, 1, 2, 2]
    found = lateness_of(arrivals)
    assert found is not None
    by_rank = [(rank.rank, rank.last, rank.collectives, rank.steps) for rank in found.ranks]
    assert by_rank == [(2, 3, 4, 1), (1, 1, 4, 1), (0, 0, 4, 0)]
    assert 1e6 * np.array([[rank.lateness, rank.mean, rank.most] for rank in found.ranks]) == (
        pytest.approx(np.array([[39, 13, 18], [30, 30, 30], [0, 0, 0]]))
    )
    by_step = [(step.step, step.rank, step.last, step.collectives) for step in found.steps]
    assert by_step == [(1, 2, 2, 2), (2, 1, 1, 2)]
    assert 1e6 * np.array([step.lateness for step in found.steps]) == pytest.approx([21, 30])
    first, second = found.collectives
    assert (first.kind, first.ranks, first.place, first.times) == ("all_reduce", 3, 1, 2)
    assert (first.most_rank, first.most_step, second.rank, second.last) == (1, 2, 2, 2)
    assert 1e6 * np.array([first.mean, first.most, second.mean]) == pytest.approx([22.5, 30, 12])
    straggler = arrivals.straggler()
    assert straggler is not None
    assert (straggler.rank, straggler.last, straggler.collectives) == (2, 3, 4)
    assert 1e6 * straggler.lateness == pytest.approx(13)


def test_no_collectives_leave_nobody_late(tmp_path: Path) -> None:
    alone = write(tmp_path, [step(1, 0, 50), launch(1, 0, 5), kernel(1, 6, 9)])
    traced = read_job([alone])
    arrivals = arrivals_of(traced, traced_times(traced).arrive)
    assert (lateness_of(arrivals), arrivals.straggler()) == (None, None)


def test_steps_that_are_joined_are_those_of_the_whole(tmp_path: Path) -> None:
    paths = three_ranks(tmp_path)
    whole = read_job(paths)
    parts = []
    for number in (1, 2):
        traced = read_job(paths, [number])
        parts.append(arrivals_of(traced, traced_times(traced).arrive))
    joined = joined_arrivals(parts)
    expected = arrivals_of(whole, traced_times(whole).arrive)
    assert joined.what == expected.what
    for name in ("code", "step", "last"):
        assert getattr(joined, name).tolist() == getattr(expected, name).tolist()
    assert joined.late == pytest.approx(expected.late)


@pytest.fixture
def several_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Write five or more steps of two ranks."""
    monkeypatch.setattr(large_traces, "LAYERS", 3)
    monkeypatch.setattr(large_traces, "OPS", 4)
    return large_traces.make(tmp_path, 2, 600_000)[1]


def test_a_large_trace_that_is_played_in_parts_comes_to_the_same(
    several_steps: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def replays() -> Replays:
        return replay_traces(several_steps, ["links: bandwidth 2x", "kernel *gemm*: 2x slower"])

    whole = replays()
    monkeypatch.setattr(traced_parts, "LARGE", 100)
    monkeypatch.setattr(traced_parts, "BLOCK", 400)
    monkeypatch.setattr(rows, "HELD", 100)
    monkeypatch.setattr(rows, "CHUNK", 64)
    parts = replays()
    assert whole.parts == 1
    assert parts.parts >= 3
    assert parts.steps == whole.steps
    for one, other, near in (
        (parts.measured, whole.measured, 1e-9),
        (parts.unchanged.outcome, whole.unchanged.outcome, 1e-9),
        # What ranks are behind each other when a part begins is as traced.
        (parts.scenarios[0].outcome, whole.scenarios[0].outcome, 2e-6),
        (parts.last.outcome, whole.last.outcome, 2e-6),
    ):
        assert one.iteration_time == pytest.approx(other.iteration_time, abs=near)
        for mine, yours in zip(one.breakdowns, other.breakdowns, strict=True):
            assert mine.compute == pytest.approx(yours.compute, abs=near)
            assert mine.waiting == pytest.approx(yours.waiting, abs=near)
    one, other = (summarise_replays(each).lateness for each in (parts, whole))
    assert one is not None
    assert other is not None
    assert [step.to_dict() for step in one.steps] == [
        {**step.to_dict(), "lateness": pytest.approx(step.lateness)} for step in other.steps
    ]
    assert one.collectives[0].times == len(whole.steps)


def test_a_change_of_what_only_some_parts_have_is_made_there(
    several_steps: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from paracosm.errors import InputError

    monkeypatch.setattr(traced_parts, "LARGE", 100)
    monkeypatch.setattr(traced_parts, "BLOCK", 400)
    with pytest.raises(InputError, match='what_if "kernel \\*conv\\*: none": unknown kernel'):
        replay_traces(several_steps, ["links: bandwidth 2x", "kernel *conv*: none"])
