"""What of communication is waited for: by hand, and what must hold of any collectives and waits."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from paracosm.timeline.analysis import (
    Floats,
    covered_before,
    exposed_of_each,
    parts_between,
    union,
)

# Whole numbers, so that ends often meet and sums are exact.
PAIRS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))),
    max_size=12,
)


def spans(pairs: list[tuple[int, int]]) -> Floats:
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)


def seconds_in(pairs: list[tuple[int, int]]) -> set[int]:
    """Return the seconds n (from n to n + 1) that some pair covers."""
    return {second for begin, end in pairs for second in range(begin, end)}


def test_a_collective_that_reaches_into_two_waits() -> None:
    collectives = spans([(0, 10), (2, 3), (9, 20), (4, 6)])
    waits = spans([(1, 4), (8, 12)])
    assert exposed_of_each(collectives, waits).tolist() == [5.0, 1.0, 3.0, 0.0]


def test_waits_of_two_threads_count_once() -> None:
    assert exposed_of_each(spans([(0, 10)]), spans([(2, 6), (4, 7), (5, 6)])).tolist() == [5.0]


def test_two_collectives_under_way_count_once() -> None:
    parts = parts_between(
        np.array([0.0]), np.array([20.0]), spans([(0, 10), (5, 12)]), spans([(8, 15)])
    )
    assert parts.exposed.tolist() == [4.0]
    assert parts.hidden.tolist() == [8.0]
    assert parts.other.tolist() == [3.0]


def test_a_collective_counts_in_every_stretch_that_it_reaches_into() -> None:
    edges = np.array([0.0, 10.0, 20.0])
    parts = parts_between(edges[:-1], edges[1:], spans([(5, 18)]), spans([(8, 12)]))
    assert parts.exposed.tolist() == [2.0, 2.0]
    assert parts.hidden.tolist() == [3.0, 6.0]


def test_without_waits_all_is_hidden_and_without_collectives_all_waiting_is_of_other_kind() -> None:
    none, all_time = spans([]), (np.array([-np.inf]), np.array([np.inf]))
    assert exposed_of_each(spans([(0, 4)]), none).tolist() == [0.0]
    assert parts_between(*all_time, spans([(0, 4)]), none).hidden.tolist() == [4.0]
    assert parts_between(*all_time, none, spans([(0, 4)])).other.tolist() == [4.0]


def test_times_of_a_machine_that_has_run_for_a_year_lose_no_microsecond() -> None:
    up = 3e7
    exposed = exposed_of_each(spans([]) + up, spans([(0, 1)]) + up)
    assert len(exposed) == 0
    found = exposed_of_each(np.array([[up, up + 2e-3]]), np.array([[up + 1e-3, up + 5e-3]]))
    assert found[0] == pytest.approx(1e-3, abs=1e-7)


@given(PAIRS, PAIRS)
def test_each_collective_is_exposed_in_the_seconds_that_some_wait_covers(
    collectives: list[tuple[int, int]], waits: list[tuple[int, int]]
) -> None:
    waited = seconds_in(waits)
    found = exposed_of_each(spans(collectives), spans(waits))
    assert_allclose(found, [len(seconds_in([each]) & waited) for each in collectives])


@given(PAIRS, PAIRS, st.lists(st.integers(-5, 60), min_size=2, max_size=6).map(sorted))
def test_parts_of_stretches_add_up_to_what_each_set_covers(
    collectives: list[tuple[int, int]], waits: list[tuple[int, int]], edges: list[int]
) -> None:
    at = np.array(edges, dtype=np.float64)
    parts = parts_between(at[:-1], at[1:], spans(collectives), spans(waits))
    under_way, waited = seconds_in(collectives), seconds_in(waits)
    stretches = [set(range(*pair)) for pair in pairwise(edges)]
    expected = {
        "exposed": [len(under_way & waited & each) for each in stretches],
        "hidden": [len((under_way - waited) & each) for each in stretches],
        "other": [len((waited - under_way) & each) for each in stretches],
    }
    for name, seconds in expected.items():
        assert_allclose(getattr(parts, name), seconds, atol=1e-9)


@given(PAIRS, PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(
    collectives: list[tuple[int, int]], waits: list[tuple[int, int]], random: Random
) -> None:
    edges = np.array([-np.inf]), np.array([np.inf])
    before = parts_between(*edges, spans(collectives), spans(waits))
    random.shuffle(collectives)
    random.shuffle(waits)
    after = parts_between(*edges, spans(collectives), spans(waits))
    for part in ("exposed", "hidden", "other"):
        assert getattr(before, part).tolist() == getattr(after, part).tolist()


@given(PAIRS)
def test_a_union_is_in_order_apart_and_covers_the_same(pairs: list[tuple[int, int]]) -> None:
    pieces = np.column_stack(union(*spans(pairs).T))
    assert (pieces[:, 0] < pieces[:, 1]).all()
    assert (pieces[1:, 0] > pieces[:-1, 1]).all()
    assert seconds_in([(int(begin), int(end)) for begin, end in pieces]) == seconds_in(pairs)


@given(PAIRS)
def test_the_covered_time_before_an_instant_grows_by_what_is_covered(
    pairs: list[tuple[int, int]],
) -> None:
    covered = seconds_in(pairs)
    found = covered_before(*spans(pairs).T, np.arange(61.0))
    assert_allclose(np.diff(found), [float(second in covered) for second in range(60)])
