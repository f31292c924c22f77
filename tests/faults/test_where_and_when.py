"""Where and when faults strike."""

from __future__ import annotations

import math
from itertools import islice, takewhile

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.faults.fault import (
    Count,
    OnProcessor,
    Rows,
    Share,
    Where,
    check_fault,
    choose_components,
    choose_processor,
    fault_times,
    mean_time_between_faults,
    parse_fault,
    parse_faults,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def chosen(where: Where | None, size: int, **more: np.ndarray) -> list[int]:
    found = choose_components(where, size, rng(), **more)
    assert found is not None
    return found.tolist()


def test_no_place_means_all() -> None:
    assert choose_components(None, 10, rng()) is None


@pytest.mark.parametrize(
    ("where", "size", "number"),
    [
        (Share(10), 100, 10),
        (Share(100), 7, 7),
        (Share(1), 7, 1),  # at least one
        (Share(12.5), 16, 2),
        (Count(5), 100, 5),
        (Count(5), 3, 3),  # a short message
    ],
)
def test_as_many_components_as_asked_for(where: Where, size: int, number: int) -> None:
    found = chosen(where, size)
    assert len(set(found)) == len(found) == number
    assert found == sorted(found)
    assert set(found) <= set(range(size))


def test_every_component_is_as_likely() -> None:
    generator = rng(5)
    hits = np.zeros(20)
    for _ in range(4000):
        hits[choose_components(Count(5), 20, generator)] += 1
    assert np.all(abs(hits - 1000) < 150)  # standard deviation 27


def test_rows_of_a_vector_of_a_matrix_and_of_a_message() -> None:
    assert chosen(Rows(3, 5), 10) == [3, 4, 5]
    row_of_nonzero = np.array([0, 0, 1, 2, 2, 2, 3])
    assert chosen(Rows(1, 2), 7, rows=row_of_nonzero) == [2, 3, 4, 5]
    assert chosen(Rows(3, 5), 2, rows=np.array([9, 4])) == [1]
    assert chosen(Rows(3, 5), 2, rows=np.array([9, 8])) == []


def test_block_of_a_processor() -> None:
    owned = np.array([6, 4, 5])
    assert chosen(OnProcessor(2), 10, owned=owned) == [4, 5, 6]
    assert chosen(OnProcessor(2), 4, rows=np.array([1, 4, 4, 7]), owned=owned) == [1, 2]


def test_processor_given_or_at_random() -> None:
    assert choose_processor(OnProcessor(3), 8, rng()) == 3
    generator = rng()
    counts = np.bincount([choose_processor(None, 4, generator) for _ in range(4000)])
    assert np.all(abs(counts - 1000) < 150)


def test_once_at_a_given_time() -> None:
    assert list(fault_times(parse_fault("signflip at 12s"), None, rng())) == [12.0]


@pytest.mark.parametrize(
    ("text", "horizon", "low", "high"),
    [
        ("signflip at random", 50.0, 0, 50),
        ("signflip", 50.0, 0, 50),
        ("signflip at random(10s, 20s)", None, 10, 20),
    ],
)
def test_once_at_random_is_uniform(
    text: str, horizon: float | None, low: float, high: float
) -> None:
    times = [
        time for seed in range(2000) for time in fault_times(parse_fault(text), horizon, rng(seed))
    ]
    assert len(times) == 2000
    deciles = np.histogram(times, bins=10, range=(low, high))[0]
    assert deciles.sum() == 2000
    assert np.all(abs(deciles - 200) < 70)  # standard deviation 13


def test_poisson_process_has_its_mean_and_the_variance_of_an_exponential() -> None:
    times = list(islice(fault_times(parse_fault("signflip every 50s"), None, rng(7)), 20_000))
    intervals = np.diff([0.0, *times])
    assert intervals.min() > 0
    assert intervals.mean() == pytest.approx(50, rel=0.04)
    assert intervals.std() == pytest.approx(50, rel=0.05)
    in_first_minute = [
        len(
            list(
                takewhile(
                    lambda time: time < 100,
                    fault_times(parse_fault("signflip every 50s"), None, rng(s)),
                )
            )
        )
        for s in range(1000)
    ]
    assert np.mean(in_first_minute) == pytest.approx(2, rel=0.15)


def test_instants_do_not_depend_on_what_the_faults_draw() -> None:
    fault = parse_fault("uniform(-1, 1) every 1s")
    quiet, busy = rng(1), rng(1)
    alone = list(islice(fault_times(fault, None, quiet), 10))
    among = []
    for time in islice(fault_times(fault, None, busy), 10):
        among.append(time)
        fault.model.corrupt(np.zeros(5), None, busy)  # type: ignore[attr-defined]
    assert alone == among
    assert alone != list(islice(fault_times(fault, None, rng(2)), 10))


@pytest.mark.parametrize("horizon", [None, 0.0, math.inf, math.nan])
def test_horizon_is_asked_for_where_it_is_needed(horizon: float | None) -> None:
    fault = parse_fault("signflip at random")
    assert fault.needs_horizon
    assert not parse_fault("signflip at random(0s, 1s)").needs_horizon
    assert not parse_fault("signflip every 1s").needs_horizon
    with pytest.raises(InputError, match="fault-free run time is not known"):
        list(fault_times(fault, horizon, rng()))


def test_rates_of_poisson_processes_add_up() -> None:
    faults = parse_faults("signflip every 30s; stop(1s) every 60s; signflip at 3s")
    assert mean_time_between_faults(faults) == pytest.approx(20)
    assert mean_time_between_faults(faults[2:]) is None


RUN = {"unknowns": 100, "entries": 460, "processors": 10, "distributed": False}


@pytest.mark.parametrize(
    "text",
    [
        "signflip on rows 0-99",
        "signflip on 100 components",
        "signflip in A on 460 components",
        "stop on processor 9",
        "signflip on 100%",
    ],
)
def test_what_the_run_has_is_accepted(text: str) -> None:
    check_fault(parse_fault(text), **RUN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("signflip in halo", 'shared memory has no halo messages; write "in x"'),
        ("stop on processor 10", "no processor 10; there are 10, from 0"),
        ("signflip on rows 3-100", "no row 100; there are 100, from 0"),
        ("signflip on 101 components", "x has only 100 components"),
        ("signflip in A on 461 components", "A has only 460 components"),
    ],
)
def test_what_the_run_has_not_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        check_fault(parse_fault(text), **RUN)
    assert "\n" not in str(caught.value)
