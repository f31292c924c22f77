"""The next step of a trace, by hand and on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_made import Event, host, kernel, launch, step, two_ranks, write
from next_step import next_step_time

from paracosm.errors import InputError
from paracosm.replays.job import read_job
from paracosm.timeline.kineto.read import read_kineto
from paracosm.timeline.kineto.trace import steps_of

RESNET = Path(__file__).parents[1] / "data" / "kineto" / "resnet.json.gz"


def test_the_second_step_of_a_real_trace_from_the_first() -> None:
    """The host runs ahead in the first (35 ms), and must wait in the second, as measured."""
    first, second = steps_of(read_kineto(RESNET))
    assert (first.duration, second.duration) == (
        pytest.approx(35.115869e-3),
        pytest.approx(72.077474e-3),
    )
    predicted = next_step_time(read_job([RESNET], steps=[first.number]))
    assert predicted == pytest.approx(second.duration, rel=2e-3)


def test_later_steps_take_as_long_as_the_device(tmp_path: Path) -> None:
    """The device is busy for 95.7 ms in each step, says the rest of that trace."""
    traced = read_job([RESNET])
    assert next_step_time(traced) == pytest.approx(95.7e-3, rel=5e-3)
    assert next_step_time(traced, ahead=3) == pytest.approx(95.7e-3, rel=5e-3)


def test_a_step_is_the_median_of_those_before(tmp_path: Path) -> None:
    """Steps of 30, 40 and 80 us, in which the host works and waits for a kernel of 10 us."""
    events: list[Event] = []
    at = 0
    for number, length in enumerate((30, 40, 80)):
        events += [
            *(step(number, at, at + length), launch(number, at, at + 5)),
            kernel(number, at + 5, at + 15),
            host("cuda_runtime", "cudaStreamSynchronize", at + 5, at + 15, correlation=90 + number),
        ]
        at += length
    traced = read_job([write(tmp_path, events)])
    assert 1e6 * next_step_time(traced) == pytest.approx(40)


def test_ranks_meet_in_the_next_step_as_well(tmp_path: Path) -> None:
    """Rank 0's step ends with its kernel, which comes 5 us after rank 1 has come."""
    traced = read_job(two_ranks(tmp_path))
    assert 1e6 * next_step_time(traced) == pytest.approx(45)


def test_a_trace_without_steps_has_no_next_one(tmp_path: Path) -> None:
    path = write(tmp_path, [launch(1, 0, 5), kernel(1, 6, 8)])
    with pytest.raises(InputError, match=r"rank0.json: marks no steps: no next one can be"):
        next_step_time(read_job([path]))
