"""Timings of a machine that was slow for a while, brought to one speed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paracosm.graphs import Op
from paracosm.profiling.environment import Environment
from paracosm.profiling.estimators import fit_estimators
from paracosm.profiling.samples import OpTiming, at_one_speed, spread_of, usual_probe

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


def test_estimators_see_one_speed() -> None:
    timings = [timing("a", 1.0, 0.004), timing("b", 1.0, 0.002), timing("c", 1.0, 0.004)]
    assert fit_estimators(timings).estimate(Op("b")).duration == pytest.approx(2.0)
