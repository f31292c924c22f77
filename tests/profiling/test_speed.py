"""Timings of a machine that was slow for a while, brought to one speed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.graphs import Op
from paracosm.profiling.environment import Environment
from paracosm.profiling.estimators import fit_estimators
from paracosm.profiling.samples import (
    OpTiming,
    at_one_speed,
    speeds_of,
    spread_of,
    usual_probe,
)

HERE = Environment("cpu", "a chip", "torch 2.13.0", 1, "malloc pinned", "flushed")


def timing(name: str, seconds: float, probe: float) -> OpTiming:
    samples = [0.9 * seconds, seconds, 1.1 * seconds]
    return OpTiming(Op(name), HERE, "cold", spread_of(samples), probe)


def test_an_op_that_was_timed_while_the_machine_was_slow_is_scaled() -> None:
    slow = timing("mm", 3.0, probe=0.006)
    (scaled,) = at_one_speed([slow], probe=0.004)
    assert scaled.probe == 0.004
    assert scaled.duration == pytest.approx(2.0)
    assert scaled.time.minimum == pytest.approx(1.8)
    assert scaled.time.variance == pytest.approx(slow.time.variance * 4 / 9)
    assert scaled.time.standard_error == pytest.approx(slow.time.standard_error)
    assert scaled.key == slow.key


def test_the_usual_speed_is_the_median_and_unprobed_timings_stay() -> None:
    timings = [timing("a", 1.0, 0.004), timing("b", 1.0, 0.002), timing("c", 1.0, 0.008)]
    unprobed = replace(timings[0], probe=0.0)
    assert usual_probe([*timings, unprobed]) == 0.004
    found = at_one_speed([*timings, unprobed])
    assert [each.duration for each in found] == pytest.approx([1.0, 2.0, 0.5, 1.0])
    assert found[3] is unprobed
    assert at_one_speed([unprobed]) == [unprobed]
    assert usual_probe([]) == 0.0


def session(name: str, seconds: dict[str, float], probe: float, day: int) -> list[OpTiming]:
    return [
        replace(timing(op, time, probe), session=name, measured_at=f"2026-01-{day:02}")
        for op, time in seconds.items()
    ]


def test_a_session_is_scaled_by_the_median_of_what_it_shares_with_those_before() -> None:
    """Half of the time that both measured was 1.5 times as long, and the probe as long as ever."""
    first = session("first", {"a": 4.0, "b": 3.0, "c": 2.0}, 1e-3, day=1)
    second = session("second", {"a": 6.0, "b": 6.0, "c": 2.0, "d": 9.0}, 1e-3, day=2)
    speeds = speeds_of([*second, *first])
    assert (speeds.first, speeds.probe) == ("first", 1e-3)
    assert speeds.factors == {"first": 1.0, "second": pytest.approx(1 / 1.5)}
    scaled = {each.op.name: each.duration for each in speeds.applied(second)}
    assert scaled == pytest.approx({"a": 4.0, "b": 4.0, "c": 4 / 3, "d": 6.0})
    assert at_one_speed(at_one_speed([*second, *first])) == at_one_speed([*second, *first])


def test_a_session_that_shares_no_op_is_scaled_by_its_probe() -> None:
    first = session("first", {"a": 4.0}, 1e-3, day=1)
    second = session("second", {"b": 4.0}, 2e-3, day=2)
    assert speeds_of([*first, *second]).factors["second"] == 0.5


def test_timings_of_older_files_are_sessions_by_their_source() -> None:
    first, second = timing("a", 1.0, 1e-3), replace(timing("b", 1.0, 2e-3), source="model x")
    assert [each.duration for each in at_one_speed([first, second])] == pytest.approx([1.0, 0.5])


@given(
    times=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6),
    others=st.lists(st.floats(1e-6, 1.0), max_size=4),
    slower=st.floats(0.1, 10.0),
)
def test_a_session_that_is_slower_as_a_whole_changes_nothing(
    times: list[float], others: list[float], slower: float
) -> None:
    ops = {f"op {number}": time for number, time in enumerate(times)}
    more = {f"other {number}": time for number, time in enumerate(others)}
    first = session("first", ops, 1e-3, day=1)
    slow = {name: slower * time for name, time in {**ops, **more}.items()}
    second = session("second", slow, slower * 1e-3, day=2)
    found = at_one_speed([*first, *second])
    expected = [*ops.values(), *ops.values(), *more.values()]
    assert [each.duration for each in found] == pytest.approx(expected, rel=1e-9)


def test_how_much_sessions_differ_widens_what_they_share() -> None:
    """Of one session 2 % is taken; of nine, equally fast but one, mostly what they showed."""
    one = speeds_of(session("0", {"a": 1.0}, 1e-3, day=1))
    assert one.between == pytest.approx(0.02)
    assert one.common == pytest.approx(1.645 * math.sqrt(2) * 0.02)
    slow = [math.exp(0.3) if number == 8 else 1.0 for number in range(9)]
    many = [
        each
        for number, factor in enumerate(slow)
        for each in session(str(number), {"a": factor}, factor * 1e-3, day=number + 1)
    ]
    squares = 0.3**2 * 8 / 9
    assert speeds_of(many).between == pytest.approx(math.sqrt((4 * 0.02**2 + squares) / 12))


def test_estimators_see_one_speed() -> None:
    timings = [timing("a", 1.0, 0.004), timing("b", 1.0, 0.002), timing("c", 1.0, 0.004)]
    assert fit_estimators(timings).estimate(Op("b")).duration == pytest.approx(2.0)
