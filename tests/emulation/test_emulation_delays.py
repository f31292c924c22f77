"""How much added delay hides: on exact data, and on a simulated data-parallel job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import made_up_records
from numpy.typing import NDArray

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.delays import (
    Delays,
    Knee,
    find_knee,
    parse_delays,
    summarise_delays,
)
from paracosm.emulation.summary import summarise
from paracosm.errors import InputError
from paracosm.results import EmulationSummary

DELAYS = np.linspace(0.0, 8e-3, 9)


def broken(delay: float, base: float, knee: float, before: float, after: float) -> float:
    return base + before * min(delay, knee) + after * max(delay - knee, 0.0)


def data_parallel(delay: float, buckets: int, workers: int) -> float:
    """Return the iteration time of a backward pass with a bucket every 3 ms, each reduced in 1 ms.

    Forward takes 20 ms, the optimizer 2 ms. Buckets go to the comm worker that is free first.
    """
    free, ready = [0.0] * workers, 0.020
    for _ in range(buckets):
        ready += 0.003
        worker = min(range(workers), key=lambda each: free[each])
        free[worker] = max(free[worker], ready) + 0.001 + delay
    return max(free) + 0.002


@pytest.mark.parametrize(
    ("text", "delays"),
    [
        ("all_reduce 0ms..8ms/9", Delays("all_reduce", tuple(n / 1000 for n in range(9)))),
        ("all_gather 0..10us/3", Delays("all_gather", (0.0, 5e-6, 1e-5))),
        ("barrier  0.5 ms .. 1.5 ms/3", Delays("barrier", (0.0, 5e-4, 1e-3, 1.5e-3))),
    ],
)
def test_delays_are_read(text: str, delays: Delays) -> None:
    assert parse_delays(text) == delays


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all_reduc 0ms..8ms/9", 'did you mean "all_reduce"?'),
        ("all_reduce 0..8/9", '"8" has no unit'),
        ("all_reduce 1..8ms/9", '"1" has no unit'),
        ("all_reduce 8ms..2ms/9", "above the first"),
        ("all_reduce 8ms..8ms/9", "above the first"),
        ("all_reduce 0ms..inf/9", "finite"),
        ("all_reduce 0ms..8ms/2", "at least 3"),
        ("all_reduce 0ms..8ms/1001", "1,000 at most"),
        ("all_reduce 0ms..8mm/9", 'did you mean "ms"?'),
        ("all_reduce -1ms..8ms/9", "must be 0 or more"),
        ("all_reduce 0ms..8ms", 'write "all_reduce 0ms..8ms/9"'),
        ("all_reduce 0ms..8ms/many", 'write "all_reduce 0ms..8ms/9"'),
        ("", 'write "all_reduce 0ms..8ms/9"'),
    ],
)
def test_delays_that_cannot_be_read_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_delays(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def knee_of(delays: list[float], times: list[NDArray[np.float64]]) -> Knee:
    """Return the knee from the iterations of each delay."""
    return find_knee(np.array(delays), np.array([np.median(each) for each in times]))


@given(
    knee=st.floats(1.2e-3, 6.8e-3),
    before=st.floats(-0.2, 2.0),
    bend=st.floats(1.0, 30.0),
    base=st.floats(0.01, 0.5),
)
def test_exact_data_give_back_knee_and_slopes(
    knee: float, before: float, bend: float, base: float
) -> None:
    times = np.array([broken(delay, base, knee, before, before + bend) for delay in DELAYS])
    fit = find_knee(DELAYS, times)
    assert fit.knee == pytest.approx(knee, rel=1e-6)
    assert fit.flat_slope == pytest.approx(before, abs=1e-6)
    assert fit.slope == pytest.approx(before + bend, rel=1e-6)
    assert fit.base == pytest.approx(base, rel=1e-6)


@given(st.lists(st.floats(0.09, 0.13), min_size=9, max_size=9))
def test_no_knee_on_a_fine_grid_fits_better(times: list[float]) -> None:
    y, found = np.array(times), find_knee(DELAYS, np.array(times))
    if found.knee is None or found.flat_slope is None:
        return
    steep = (found.slope - found.flat_slope) * np.maximum(DELAYS - found.knee, 0.0)
    best = float(np.square(found.base + found.flat_slope * DELAYS + steep - y).sum())
    for knee in np.linspace(1e-3, 7e-3, 61):
        columns = np.column_stack([np.ones(9), DELAYS, np.maximum(DELAYS - knee, 0.0)])
        left = columns @ np.linalg.lstsq(columns, y, rcond=None)[0] - y
        assert best <= float(left @ left) * (1 + 1e-9) + 1e-15


def test_delays_that_all_hide() -> None:
    found = knee_of(DELAYS.tolist(), [np.array([0.1, 0.1001, 0.1002])] * 9)
    assert found.knee is None
    assert found.slope == pytest.approx(0.0, abs=1e-9)
    assert found.reason == "all delays up to 8 ms hide"


@pytest.mark.filterwarnings("error")
def test_delays_whose_squares_are_infinite() -> None:
    delays = np.array([0.0, 5e299, 1e300])
    assert find_knee(delays, 2 * delays).slope == pytest.approx(2.0)


def test_an_exact_straight_line_has_no_knee() -> None:
    assert knee_of(DELAYS.tolist(), [np.array([0.1 + 8 * d]) for d in DELAYS]).knee is None


@pytest.mark.parametrize(("buckets", "workers"), [(8, 1), (8, 2), (4, 1), (2, 1)])
def test_a_data_parallel_job_has_its_knee_where_a_worker_is_never_idle(
    buckets: int, workers: int
) -> None:
    # A worker has a bucket every 3 ms * workers, which takes 1 ms and the delay.
    knee = 0.003 * workers - 0.001
    times = [np.array([data_parallel(delay, buckets, workers)]) for delay in DELAYS]
    found = knee_of(DELAYS.tolist(), times)
    assert found.knee == pytest.approx(knee, rel=1e-6)
    assert found.flat_slope == pytest.approx(1.0)  # the last bucket hides under nothing
    assert found.slope == pytest.approx(buckets / workers)
    assert found.base == pytest.approx(0.020 + 0.003 * buckets + 0.001 + 0.002)


def test_three_delays_give_a_line_and_two_nothing() -> None:
    found = knee_of([0.0, 1e-3, 2e-3], [np.array([0.1 + 4 * n * 1e-3]) for n in range(3)])
    assert found.knee is None
    assert found.slope == pytest.approx(4.0)
    assert found.reason == "3 delays are too few for a knee"


def summaries(delays: list[float]) -> list[EmulationSummary]:
    config = EmulateConfig(script=Path("train.py"), world_size=4)
    late = [broken(delay, 0.0, 2.5e-3, 1.0, 2.0) for delay in delays]
    return [summarise(config, made_up_records(slower=each), 0) for each in late]


def test_the_summary_of_several_runs_names_the_knee() -> None:
    listed, knee = summarise_delays("all_reduce", DELAYS.tolist(), summaries(DELAYS.tolist()))
    assert [each["delay"] for each in listed] == DELAYS.tolist()
    assert listed[0]["iteration_time"]["median"] == pytest.approx(0.1)
    assert listed[0]["status"] == "done"
    assert knee["knee"] == pytest.approx(2.5e-3, rel=1e-4)
    assert (knee["flat_slope"], knee["slope"]) == (pytest.approx(1.0), pytest.approx(2.0))
    assert knee["per_iteration"] == 2
    assert knee["sentence"].startswith("Up to 2.5 ms the")
    assert "1.00 times the delay longer, beyond 2.00 times (2 all_reduce an" in knee["sentence"]


def test_runs_that_failed_are_listed_and_left_out_of_the_fit() -> None:
    runs = summaries(DELAYS.tolist())
    config = EmulateConfig(script=Path("train.py"), world_size=4)
    runs[3] = summarise(config, [], 1)
    listed, knee = summarise_delays("all_reduce", DELAYS.tolist(), runs)
    assert listed[3] == {
        "delay": DELAYS[3],
        "status": "failed",
        "iteration_time": None,
        "breakdown": None,
    }
    assert knee["knee"] == pytest.approx(2.5e-3, rel=1e-3)
    _, none = summarise_delays("all_reduce", [0.0, 1e-3, 2e-3], [summarise(config, [], 1)] * 3)
    assert none["knee"] is None
    assert none["reason"] == "only 0 of 3 runs have iteration times"
