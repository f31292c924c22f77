"""Estimators on a synthetic device with known times: how far off, and whether intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_device import TYPES, device_time, draw, timings_of

from paracosm.graphs.graph import Op
from paracosm.profiling.estimators.estimators import Estimators, fit_estimators
from paracosm.profiling.samples import OpTiming

METHODS = ("roofline", "mlp", "gaussian")


@pytest.fixture(scope="module")
def timings() -> list[OpTiming]:
    return [each for seed, name in enumerate(TYPES) for each in timings_of(draw(name, 60, seed))]


@pytest.fixture(scope="module")
def held_out(timings: list[OpTiming]) -> dict[str, list[Op]]:
    timed = {timing.op for timing in timings}
    drawn = {name: draw(name, 120, seed) for seed, name in enumerate(TYPES, start=100)}
    return {name: [op for op in ops if op not in timed] for name, ops in drawn.items()}


@pytest.fixture(scope="module")
def fitted(timings: list[OpTiming]) -> dict[str, Estimators]:
    return {method: fit_estimators(timings, method=method) for method in METHODS}


def error(estimators: Estimators, ops: list[Op]) -> float:
    """Mean absolute error of the logarithm."""
    estimates = [estimators.estimate(op) for op in ops]
    pairs = zip(estimates, ops, strict=True)
    return float(np.mean([abs(np.log(each.duration / device_time(op))) for each, op in pairs]))


@pytest.mark.parametrize("name", TYPES)
def test_both_learned_estimators_beat_the_roofline(
    name: str, fitted: dict[str, Estimators], held_out: dict[str, list[Op]]
) -> None:
    roofline = error(fitted["roofline"], held_out[name])
    assert error(fitted["gaussian"], held_out[name]) < 0.9 * roofline
    assert error(fitted["mlp"], held_out[name]) < 0.95 * roofline


def test_the_gaussian_process_beats_the_paper_s_network(
    fitted: dict[str, Estimators], held_out: dict[str, list[Op]]
) -> None:
    ratios = [
        error(fitted["gaussian"], held_out[name]) / error(fitted["mlp"], held_out[name])
        for name in TYPES
    ]
    assert np.mean(ratios) < 0.95


@pytest.mark.parametrize("method", METHODS)
def test_nine_of_ten_true_times_lie_in_the_interval(
    method: str, fitted: dict[str, Estimators], held_out: dict[str, list[Op]]
) -> None:
    ops = [op for name in TYPES for op in held_out[name]]
    estimates = [fitted[method].estimate(op) for op in ops]
    inside = [
        estimate.low <= device_time(op) <= estimate.high
        for estimate, op in zip(estimates, ops, strict=True)
    ]
    assert 0.80 <= np.mean(inside) <= 0.97


def test_cross_validation_foretells_the_held_out_error(
    fitted: dict[str, Estimators], held_out: dict[str, list[Op]]
) -> None:
    for score in next(iter(fitted.values())).scores:
        for method in METHODS:
            later = error(fitted[method], held_out[score.name])
            assert 0.6 < score.errors[method] / later < 1.7


def test_what_cross_validation_chose_is_fitted_and_its_scores_are_kept(
    timings: list[OpTiming],
) -> None:
    estimators = fit_estimators(timings)
    for score in estimators.scores:
        assert score.chosen == min(score.errors, key=lambda method: score.errors[method])
        assert estimators.types[score.name].method == score.chosen
