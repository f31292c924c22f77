"""Traces of several ranks: where they meet, by hand and on eight real ones, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import Event, all_reduce, kernel, launch, step, two_ranks, write
from meetings import Meeting, meetings_of, transfer_by_others

from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.replays.job import read_job
from paracosm.replays.outcome import Outcome, outcome_of, replayed, traced_times
from paracosm.replays.run import changed
from paracosm.replays.traced import TracedJob
from paracosm.timeline.kineto import read_kineto

DLRM = Path(__file__).parents[1] / "data" / "kineto" / "dlrm"


def under(traced: TracedJob, *what_ifs: str) -> Outcome:
    return outcome_of(traced, replayed(changed(traced, [parse_change(text) for text in what_ifs])))


def test_two_ranks_that_meet_once(tmp_path: Path) -> None:
    traced = read_job(two_ranks(tmp_path))
    for outcome in (outcome_of(traced, traced_times(traced)), under(traced)):
        first, second = outcome.breakdowns
        assert 1e6 * outcome.iteration_time == pytest.approx(45)
        assert 1e6 * np.array([first.compute, first.exposed_communication]) == pytest.approx(
            [10, 5]
        )
        assert 1e6 * np.array([first.waiting, first.host]) == pytest.approx([15, 15])
        assert 1e6 * np.array([second.waiting, second.host]) == pytest.approx([0, 40])
        assert outcome.straggler is not None
        assert (outcome.straggler.rank, outcome.straggler.last) == (1, 1)
        assert 1e6 * outcome.straggler.lateness == pytest.approx(15)


@pytest.mark.parametrize(
    ("what_if", "first", "second"),
    [
        # Both are there at 25; then 1 us, the kernel (10), the end of the wait (2), the host (3).
        ("links: bandwidth 5x", 25 + 1 + 10 + 2 + 3, 45),
        ("all_reduce: 5x faster", 25 + 1 + 10 + 2 + 3, 45),
        ("collectives: none", 25 + 10 + 2 + 3, 45),
        ("latency: +10 us", 25 + 15 + 10 + 2 + 3, 45),
        ("latency: -3 us", 25 + 2 + 10 + 2 + 3, 45),
        # Rank 1 is there at 4 + 2.5 + 12 us.
        ("worker 1: host 2x faster", 18.5 + 5 + 10 + 2 + 3, 22.5),
        ("rank 0: compute 10x faster", 25 + 5 + 1 + 2 + 3, 45),
    ],
)
def test_what_ifs_of_two_ranks(what_if: str, first: float, second: float, tmp_path: Path) -> None:
    outcome = under(read_job(two_ranks(tmp_path)), what_if)
    assert [1e6 * breakdown.total for breakdown in outcome.breakdowns] == pytest.approx(
        [first, second]
    )


def test_clocks_that_disagree_are_set_by_the_collectives(tmp_path: Path) -> None:
    traced = read_job(two_ranks(tmp_path, late=1000))
    assert traced.moved == {1: pytest.approx(-1e-3)}
    assert 1e6 * outcome_of(traced, traced_times(traced)).iteration_time == pytest.approx(45)
    assert read_job(two_ranks(tmp_path, late=20)).moved == {}


def test_a_rank_that_begins_later_still_does(tmp_path: Path) -> None:
    """By 20 us: it is there at 45, and rank 0 goes on 20 us later."""
    traced = read_job(two_ranks(tmp_path, late=20))
    times = replayed(traced.job)
    assert 1e6 * times.begin[1][0] == 0
    assert 1e6 * times.end[1].max() == pytest.approx(20 + 45)
    assert 1e6 * outcome_of(traced, times).breakdowns[0].total == pytest.approx(65)


def test_groups_that_the_traces_name_meet_by_themselves(tmp_path: Path) -> None:
    """Ranks 0 and 1 in group "a", 2 and 3 in "b": rank 3 keeps nobody but rank 2."""
    paths = []
    for rank in range(4):
        arrive, end = (10, 15) if rank < 2 else (40 if rank == 3 else 12, 47)
        group = {
            "Collective name": "allreduce",
            "Process Group Name": "ab"[rank // 2],
            "Group size": 2,
            "Process Group Ranks": str([rank // 2 * 2, rank // 2 * 2 + 1]),
        }
        meet = kernel(1, arrive, end, "ncclKernel", 20, **group)
        paths.append(write(tmp_path, [step(1, 0, 60), launch(1, 0, 5), meet], rank, 4))
    traced = read_job(paths)
    communicators = traced.job.communicators
    assert [communicators.ranks(number) for number in range(2)] == [(0, 1), (2, 3)]
    assert [1e6 * breakdown.waiting for breakdown in under(traced).breakdowns] == pytest.approx(
        [0, 0, 28, 0]
    )


def test_eight_real_ranks_are_played_as_they_were() -> None:
    traced = read_job(sorted(DLRM.glob("*.json.gz")))
    assert (traced.job.ranks, traced.steps) == (8, (10,))
    measured, played = outcome_of(traced, traced_times(traced)), under(traced)
    assert measured.iteration_time == pytest.approx(19.901e-3)
    assert played.iteration_time == pytest.approx(measured.iteration_time, rel=2e-4)
    times = replayed(traced.job)
    for rank, end in zip(traced.ranks, times.end, strict=True):
        assert np.abs(end - rank.end).max() < 100e-6
        assert np.median(np.abs(end - rank.end)) < 5e-6
    for outcome in (measured, played):
        assert outcome.straggler is not None
        assert (outcome.straggler.rank, outcome.straggler.last) == (7, 5)


def test_ends_of_real_collectives_from_when_ranks_arrive() -> None:
    """The ends of eight ranks agree within 7 us; those of the first four are predicted as well."""
    meetings = meetings_of(read_job(sorted(DLRM.glob("*.json.gz"))))
    assert [meeting.kind for meeting in meetings] == [
        *["all_to_all"] * 4,
        *("all_reduce", "all_to_all", "all_reduce", "all_reduce"),
    ]
    assert [meeting.last for meeting in meetings] == [7, 7, 7, 7, 7, 5, 5, 4]
    errors = []
    for number, meeting in enumerate(meetings):
        assert np.ptp(meeting.end) <= 7.001e-6
        predicted = transfer_by_others(meetings, number)
        assert predicted is not None
        errors.append(meeting.begin + predicted - meeting.end.mean())
        waited = meeting.begin - meeting.arrive
        assert waited == pytest.approx(meeting.waited, abs=7.001e-6)
    assert np.abs(errors).max() < 30e-6
    assert np.abs(errors[:4]).max() < 2e-6


def meeting(kind: str, size: int, transfer: float) -> Meeting:
    return Meeting(kind, size, (0, 1), np.array([0.0, 1.0]), np.array([1.0, 1.0]) + transfer)


def test_what_a_collective_takes_by_the_others_of_its_kind() -> None:
    line = [meeting("all_reduce", size, 2 + 3 * size) for size in (1, 2, 5)]
    odd = meeting("all_gather", 9, 4.0)
    assert transfer_by_others([*line, odd], 0) == pytest.approx(2 + 3)
    assert transfer_by_others([*line, odd], 2) == pytest.approx(2 + 15)
    assert transfer_by_others([*line, odd], 3) is None
    assert transfer_by_others([*line[:1], odd, odd], 1) == pytest.approx(4)
    # What shrinks with the size is no bandwidth.
    shrinking = [meeting("all_reduce", size, 5 - size) for size in (1, 3, 2)]
    assert transfer_by_others(shrinking, 2) == pytest.approx(3)


def changed_file(path: Path, **header: Any) -> Path:
    content = json.loads(path.read_text())
    content["distributedInfo"] |= header
    path.write_text(json.dumps(content))
    return path


def test_ranks_that_are_missing_or_given_twice_are_refused(tmp_path: Path) -> None:
    first, second = two_ranks(tmp_path)
    with pytest.raises(
        InputError,
        match=r"rank0.json: all_reduce among 2 ranks, and there is no trace of rank 1: give one of "
        r"every rank, or --alone",
    ):
        read_job([first])
    with pytest.raises(InputError, match=r"rank0.json: of rank 0, and so is .*rank0.json"):
        read_job([first, first])
    with pytest.raises(InputError, match="--alone needs the trace of a single rank"):
        read_job([first, second], alone=True)
    with pytest.raises(InputError, match="no traces: give one file for each rank"):
        read_job([])
    with pytest.raises(InputError, match="there is no trace of rank 3, 4, 5, 6, 7: give one"):
        read_job(sorted(DLRM.glob("*.json.gz"))[:3])
    changed_file(second, world_size=4)
    with pytest.raises(InputError, match="traces of different jobs: of 2, 4 ranks"):
        read_job([first, second])


def test_a_trace_that_does_not_say_its_rank_is_refused_among_those_that_do(tmp_path: Path) -> None:
    first, _ = two_ranks(tmp_path)
    silent = write(tmp_path, [step(1, 0, 10), launch(1, 0, 5), kernel(1, 6, 8)], None)
    with pytest.raises(InputError, match=r'rankNone.json: lacks "distributedInfo", which says the'):
        read_job([first, silent])


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (
            [all_reduce(1, 25, 30, "ncclKernel_AllGather_RING_LL_Sum_int8_t")],
            r"rank1.json: collective 0 in ranks 0, 1 is all_gather \(at 0.025 ms\), and that of",
        ),
        (
            [all_reduce(1, 25, 30), launch(2, 13, 15), all_reduce(2, 31, 32)],
            "rank1.json: 2 collectives in ranks 0, 1, and rank 0 has 1: the traces are not of",
        ),
        ([kernel(1, 25, 30)], "rank1.json: 0 collectives in ranks 0, 1, and rank 0 has 1"),
        (
            [kernel(1, 25, 30, "nccl", 20, **{"Collective name": "allreduce", "Group size": 4})],
            r"all_reduce in a group of 4 ranks that the trace does not name, of 2: which of them",
        ),
    ],
)
def test_collectives_that_do_not_match_are_refused(
    events: list[Event], reason: str, tmp_path: Path
) -> None:
    first, _ = two_ranks(tmp_path)
    second = write(tmp_path, [step(1, 0, 45), launch(1, 8, 13), *events], 1, 2)
    with pytest.raises(InputError, match=reason):
        read_job([first, second])


def test_traces_of_different_steps_are_refused(tmp_path: Path) -> None:
    first, _ = two_ranks(tmp_path)
    second = write(tmp_path, [step(4, 0, 45), launch(1, 8, 13), all_reduce(1, 25, 30)], 1, 2)
    with pytest.raises(
        InputError, match=r"rank1.json: shares no step with .*rank0.json: 4 to 4 ag"
    ):
        read_job([first, second])


def test_a_missing_collective_of_a_real_rank_is_named(tmp_path: Path) -> None:
    import gzip

    paths = sorted(DLRM.glob("*.json.gz"))
    content = json.loads(gzip.decompress(paths[5].read_bytes()))
    events = content["traceEvents"]
    met = [event for event in events if event["name"].startswith("ncclKernel")]
    events.remove(met[2])
    damaged = tmp_path / "rank5.json"
    damaged.write_text(json.dumps(content))
    assert len(read_kineto(damaged)) == len(read_kineto(paths[5])) - 1
    with pytest.raises(
        InputError,
        match=r"rank5.json: collective 3 in ranks 0 to 7 is all_reduce .* of rank 0 is all_to_all",
    ):
        read_job([*paths[:5], damaged, *paths[6:]])
