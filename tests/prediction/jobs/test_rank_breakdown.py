"""Where the time of a rank goes, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made_jobs import MS, data_parallel, two_stages
from hypothesis import given
from hypothesis import strategies as st

from paracosm.jobs import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation.breakdown import PARTS, rank_breakdown
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule


def in_ms(schedule: JobSchedule, rank: int, pipelined: bool = False) -> dict[str, float]:
    """Return the parts that take any time, in milliseconds."""
    parts = rank_breakdown(schedule, rank, pipelined=pipelined)
    assert tuple(parts) == PARTS
    return {part: round(time / MS, 6) for part, time in parts.items() if time}


def test_the_fast_rank_waits_and_the_slow_one_does_not() -> None:
    schedule = replay_job(data_parallel(10, 3, (1.0, 0.5)))
    assert in_ms(schedule, 0) == {"compute": 10, "waiting": 10, "exposed_communication": 3}
    assert in_ms(schedule, 1) == {"compute": 20, "exposed_communication": 3}


def test_communication_under_computing_costs_nothing() -> None:
    books = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(*books)
    first = writer.add("a", "compute", 4 * MS)
    writer.add("sum", "communication", 5 * MS, [first], kind="collective", role="data")
    writer.add("b", "compute", 3 * MS, [first])
    job = write_job([writer], [0, 0], write_communicators([(0, 1)]), [{"data": 0}] * 2)
    assert in_ms(replay_job(job), 0) == {"compute": 7, "exposed_communication": 2}


@pytest.mark.parametrize("batches", [1, 4])
def test_the_bubble_of_gpipe_is_that_of_the_paper(batches: int) -> None:
    # (p - 1) (forward + backward) of m (forward + backward) + that: Huang et al. 2019.
    schedule = replay_job(two_stages(batches, forward=1, backward=2, transfer=0))
    for rank in (0, 1):
        assert in_ms(schedule, rank, pipelined=True) == {"compute": 3 * batches, "bubble": 3}


def test_a_message_on_the_way_is_communication_and_one_not_sent_is_not() -> None:
    schedule = replay_job(two_stages(1, forward=1, backward=2, transfer=0.5))
    assert schedule.makespan == pytest.approx(7 * MS)
    # Rank 0 sends for 0.5 while nothing is to be received yet: the next stage is not done.
    first = in_ms(schedule, 0, pipelined=True)
    assert first == {"compute": 3, "exposed_communication": 0.5, "bubble": 3.5}
    second = in_ms(schedule, 1, pipelined=True)
    assert second == {"compute": 3, "exposed_communication": 1.0, "bubble": 3}


def test_without_a_pipeline_the_same_is_waiting() -> None:
    schedule = replay_job(two_stages(1, forward=1, backward=2, transfer=0))
    assert in_ms(schedule, 0) == {"compute": 3, "waiting": 3}


def test_a_host_that_issues_and_copies() -> None:
    books = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(*books)
    first = writer.add("launch", "host", 2 * MS)
    op = writer.add("op", "compute", 1 * MS, [first])
    second = writer.add("launch", "host", 3 * MS, [first])
    copy = writer.add("copy", "memory", 1.5 * MS, [op])
    writer.add("op", "compute", 1 * MS, [copy, second])
    schedule = replay_job(write_job([writer], [0], write_communicators([]), [{}]))
    # 2 launching, 1 computing, 1.5 copying, 0.5 launching still, 1 computing.
    assert in_ms(schedule, 0) == {"compute": 2, "copies": 1.5, "launch": 2.5}


def test_a_delay_that_keeps_no_lane_busy_is_idle_time() -> None:
    writer = ProgramWriter(Codebook(), Codebook(), Codebook())
    first = writer.add("op", "compute", 1 * MS)
    delay = writer.add("delay", None, 2 * MS, [first])
    writer.add("op", "compute", 1 * MS, [delay])
    schedule = replay_job(write_job([writer], [0], write_communicators([]), [{}]))
    assert in_ms(schedule, 0) == {"compute": 2, "idle": 2}


@given(
    st.lists(st.floats(0.25, 4), min_size=1, max_size=5),
    st.floats(0, 50),
    st.floats(0, 50),
)
def test_the_parts_add_up_to_the_iteration_to_the_picosecond(
    speeds: list[float], compute: float, transfer: float
) -> None:
    schedule = replay_job(data_parallel(compute, transfer, tuple(speeds)))
    for rank in range(len(speeds)):
        parts = rank_breakdown(schedule, rank, pipelined=False)
        assert min(parts.values()) >= 0
        picoseconds = sum(round(time * 1e12) for time in parts.values())
        assert picoseconds == round(schedule.makespan * 1e12)
        assert np.isclose(parts["compute"], compute * MS / speeds[rank])
