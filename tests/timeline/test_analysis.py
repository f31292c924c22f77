"""Where time went: by hand, and counted instant by instant."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.timeline.analysis import (
    breakdown,
    busy_time,
    check,
    covered,
    covered_before,
    exposed_of_each,
    exposure_between,
    largest_share,
    overlap,
    union,
    utilisation,
)
from paracosm.timeline.timeline import Timeline


def test_utilisation_by_hand():
    timeline = Timeline()
    timeline.span("worker0", "compute", "a", 0.0, 2.0)
    timeline.span("worker0", "compute", "b", 3.0, 4.0)
    timeline.span("worker0", "send", "a", 1.5, 3.5)
    timeline.span("server0", "receive", "a", 1.5, 3.5)
    timeline.span("worker0", "wait", "outer", 4.0, 12.0)
    timeline.span("worker0", "wait", "inner", 5.0, 6.0)
    assert utilisation(timeline, 8.0) == {
        ("worker0", "compute"): 3 / 8,
        ("worker0", "send"): 2 / 8,
        ("server0", "receive"): 2 / 8,
        ("worker0", "wait"): 4 / 8,
    }
    assert busy_time(timeline, 1.0)[("worker0", "compute")] == 1.0
    assert busy_time(timeline, 1.0)[("worker0", "send")] == 0.0
    assert overlap(timeline, 8.0) == {"worker0": 1.0, "server0": 0.0}
    assert overlap(timeline, 8.0, "send", ["compute", "wait"])["worker0"] == 1.0


def test_utilisation_of_nothing():
    assert utilisation(Timeline(), 1.0) == {}
    with pytest.raises(InputError, match="until must be above 0, not 0"):
        utilisation(Timeline(), 0.0)


ticks = st.integers(0, 30)
tick_spans = st.lists(
    st.tuples(st.sampled_from(["compute", "send", "receive"]), ticks, ticks), max_size=30
)


@given(tick_spans, st.integers(1, 40))
def test_against_counting_ticks(spans, until):
    timeline = Timeline()
    ticked = {resource: np.zeros(100, bool) for resource in ("compute", "send", "receive")}
    for resource, begin, length in spans:
        timeline.span("n", resource, "x", float(begin), float(begin + length))
        ticked[resource][begin : begin + length] = True
    for (_, resource), busy in busy_time(timeline, until).items():
        assert busy == ticked[resource][:until].sum()
    both = ticked["compute"] & (ticked["send"] | ticked["receive"])
    assert overlap(timeline, until).get("n", 0.0) == both[:until].sum()


def test_a_sound_timeline_passes():
    timeline = Timeline()
    timeline.span("a", "send", "m", 0.0, 1.0, flow=0)
    timeline.span("b", "receive", "m", 0.0, 1.0, flow=0)
    timeline.span("a", "send", "m", 1.0, 1.0, flow=1)
    timeline.span("b", "receive", "m", 1.5, 1.5, flow=1)
    timeline.span("a", "compute", "c", 0.5, 2.0)
    timeline.span("a", "compute", "c", 2.0 - 1e-16, 3.0)
    timeline.span("a", "wait", "w", 0.0, 2.0)
    timeline.span("a", "wait", "w", 1.0, 3.0)
    assert check(timeline) == []


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([("a", "compute", "x", 2.0, 1.0, -1)], "ends before it begins"),
        ([("a", "compute", "x", 2.0, float("nan"), -1)], "not finite"),
        (
            [("a", "send", "x", 0.0, 2.0, -1), ("a", "send", "y", 1.0, 3.0, -1)],
            "a send 'y' [1.0, 3.0] overlaps a send 'x' [0.0, 2.0]",
        ),
        (
            [
                ("a", "compute", "x", 0.0, 9.0, -1),
                ("a", "compute", "y", 1.0, 2.0, -1),
                ("a", "compute", "z", 3.0, 4.0, -1),
            ],
            "'z' [3.0, 4.0] overlaps a compute 'x'",
        ),
        ([("a", "send", "x", 0.0, 2.0, 5)], "message 5 has 1 send and 0 receive spans"),
        (
            [("a", "send", "x", 1.0, 2.0, 5), ("b", "receive", "x", 0.5, 2.0, 5)],
            "message 5 is received before it is sent",
        ),
    ],
)
def test_what_cannot_be_is_reported(spans, words):
    timeline = Timeline()
    for span in spans:
        timeline.append(span)
    assert any(words in problem for problem in check(timeline))


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
    parts = exposure_between(
        np.array([0.0]), np.array([20.0]), spans([(0, 10), (5, 12)]), spans([(8, 15)])
    )
    assert parts.exposed.tolist() == [4.0]
    assert parts.hidden.tolist() == [8.0]
    assert parts.other.tolist() == [3.0]


def test_a_collective_counts_in_every_stretch_that_it_reaches_into() -> None:
    edges = np.array([0.0, 10.0, 20.0])
    parts = exposure_between(edges[:-1], edges[1:], spans([(5, 18)]), spans([(8, 12)]))
    assert parts.exposed.tolist() == [2.0, 2.0]
    assert parts.hidden.tolist() == [3.0, 6.0]


def test_without_waits_all_is_hidden_and_without_collectives_all_waiting_is_of_other_kind() -> None:
    none, all_time = spans([]), (np.array([-np.inf]), np.array([np.inf]))
    assert exposed_of_each(spans([(0, 4)]), none).tolist() == [0.0]
    assert exposure_between(*all_time, spans([(0, 4)]), none).hidden.tolist() == [4.0]
    assert exposure_between(*all_time, none, spans([(0, 4)])).other.tolist() == [4.0]


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
    assert_allclose(found, [len(seconds_in([collective]) & waited) for collective in collectives])


@given(PAIRS, PAIRS, st.lists(st.integers(-5, 60), min_size=2, max_size=6).map(sorted))
def test_parts_of_stretches_add_up_to_what_each_set_covers(
    collectives: list[tuple[int, int]], waits: list[tuple[int, int]], edges: list[int]
) -> None:
    at = np.array(edges, dtype=np.float64)
    parts = exposure_between(at[:-1], at[1:], spans(collectives), spans(waits))
    under_way, waited = seconds_in(collectives), seconds_in(waits)
    stretches = [set(range(*pair)) for pair in pairwise(edges)]
    expected = {
        "exposed": [len(under_way & waited & stretch) for stretch in stretches],
        "hidden": [len((under_way - waited) & stretch) for stretch in stretches],
        "other": [len((waited - under_way) & stretch) for stretch in stretches],
    }
    for name, seconds in expected.items():
        assert_allclose(getattr(parts, name), seconds, atol=1e-9)


@given(PAIRS, PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(
    collectives: list[tuple[int, int]], waits: list[tuple[int, int]], random: Random
) -> None:
    edges = np.array([-np.inf]), np.array([np.inf])
    before = exposure_between(*edges, spans(collectives), spans(waits))
    random.shuffle(collectives)
    random.shuffle(waits)
    after = exposure_between(*edges, spans(collectives), spans(waits))
    for part in ("exposed", "hidden", "other"):
        assert getattr(before, part).tolist() == getattr(after, part).tolist()


@given(PAIRS, st.integers(0, 4))
def test_a_union_covers_the_same_and_closes_small_gaps(
    pairs: list[tuple[int, int]], gap: int
) -> None:
    begin, end = union(*spans(pairs).T)
    assert (begin < end).all()
    assert (begin[1:] > end[:-1]).all()
    assert seconds_in(list(zip(begin.astype(int), end.astype(int), strict=True))) == seconds_in(
        pairs
    )
    assert covered(*spans(pairs).T) == len(seconds_in(pairs))
    joined, last = union(*spans(pairs).T, gap)
    assert (joined[1:] > last[:-1] + gap).all()
    # A gap that is not closed is one between the intervals.
    assert set(joined) <= set(begin)
    assert set(last) <= set(end)


@given(PAIRS)
def test_whole_numbers_stay_whole_whatever_their_size(pairs: list[tuple[int, int]]) -> None:
    far = 2**60  # floats are 256 apart there
    begin, end = np.array(pairs, dtype=np.int64).reshape(-1, 2).T + far
    assert covered(begin, end) == len(seconds_in(pairs))
    parts = breakdown([("busy", begin, end)], far, far + 60, "idle")
    assert parts == {"busy": len(seconds_in(pairs)), "idle": 60 - len(seconds_in(pairs))}


@given(PAIRS)
def test_the_covered_time_before_an_instant_grows_by_what_is_covered(
    pairs: list[tuple[int, int]],
) -> None:
    inside = seconds_in(pairs)
    found = covered_before(*spans(pairs).T, np.arange(61.0))
    assert_allclose(np.diff(found), [float(second in inside) for second in range(60)])


def test_an_instant_belongs_to_the_first_part_that_holds() -> None:
    parts = [
        ("compute", *spans([(0, 4), (6, 8)]).T),
        ("exposed_communication", *spans([(3, 7)]).T),
        ("waiting", *spans([(1, 2), (7, 9), (8.5, 30)]).T),
        ("compute", *spans([(9, 10)]).T),
    ]
    assert breakdown(parts, 0.0, 12.0, "idle") == {
        "compute": 6.0,
        "exposed_communication": 2.0,
        "waiting": 4.0,
        "idle": 0.0,
    }
    # Cut to what lies within: of computing 1 and 1, of communication what is not computed.
    assert breakdown(parts[:2], 3.0, 7.0, "idle") == {
        "compute": 2.0,
        "exposed_communication": 2.0,
        "idle": 0.0,
    }
    assert breakdown([], 1.0, 3.0, "idle") == {"idle": 2.0}


@given(st.lists(st.tuples(st.sampled_from("abc"), PAIRS), max_size=5), st.integers(1, 60))
def test_parts_of_a_breakdown_are_counted_second_by_second(
    reasons: list[tuple[str, list[tuple[int, int]]]], end: int
) -> None:
    found = breakdown([(name, *spans(pairs).T) for name, pairs in reasons], 0.0, end, "rest")
    assert sum(found.values()) == end
    expected = dict.fromkeys([*(name for name, _ in reasons), "rest"], 0)
    for second in range(end):
        holds = (name for name, pairs in reasons if second in seconds_in(pairs))
        expected[next(holds, "rest")] += 1
    assert found == expected


def test_the_largest_share_is_the_first_of_equal_ones() -> None:
    assert largest_share({"a": 1.0, "b": 3.0, "c": 3.0}, 12.0) == ("b", 0.25)
