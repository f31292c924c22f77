"""Parameters of a known model are found again in the ends that it makes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.stream_fit import (
    StreamModel,
    calibration_of,
    downlink_streams,
    fit_streams,
    stream_ends,
)
from paracosm.profiling.jobs import DOWNLINK, JobProfile

MB = 1_000_000
SIZES = (2_048_000, 3_538_944, 2_654_208, 4_718_592, 768, 92_928, 4096, 2_359_296, 1_228_800, 1536)


def made_by(model: StreamModel, *, noise: float = 0.0, steps: int = 30) -> JobProfile:
    """Return a profile whose streams begin in an order that differs step by step."""
    rng = np.random.default_rng(7)
    ops = len(SIZES)
    names = tuple(f"stream{op}" for op in range(ops))
    begin = rng.uniform(1e-3, 4e-3, (steps, ops))
    profile = JobProfile(
        names=names,
        kinds=names,
        resource=np.full(ops, DOWNLINK, np.int8),
        server=np.zeros(ops, np.int64),
        size=np.array(SIZES),
        first_dependency=np.zeros(ops + 1, np.int64),
        dependencies=np.zeros(0, np.int64),
        begin=begin,
        end=np.ones((steps, ops)),
        step_begin=np.arange(steps) * 10.0,
        step_end=np.arange(steps) * 10.0 + 9,
    )
    streams = downlink_streams(profile)
    ends = stream_ends(streams, model) * (1 + noise * rng.standard_normal(len(streams.size)))
    end = np.empty((steps, ops))
    np.put_along_axis(end, np.argsort(begin, axis=1), ends.reshape(steps, ops), axis=1)
    return replace(profile, end=end)


@pytest.mark.parametrize(
    "window", [262_144.0, pytest.param(1.0 * MB, marks=pytest.mark.slow), 3.0 * MB]
)
def test_bandwidth_window_alpha_and_beta_are_found_again(window: float) -> None:
    truth = StreamModel(24e6, window, alpha=3e-9, beta=2e-3)
    fit = fit_streams(made_by(truth))
    assert fit.model.bandwidth == pytest.approx(24e6, rel=1e-3)
    assert fit.model.window == pytest.approx(window, rel=0.01)
    assert fit.model.alpha == pytest.approx(3e-9, rel=0.05)
    assert fit.model.beta == pytest.approx(2e-3, rel=0.05)
    assert fit.errors.average < 2e-3
    assert fit.without.average > 0.05


def test_streams_that_are_not_interrupted_have_an_infinite_window() -> None:
    truth = StreamModel(24e6, alpha=1e-9, beta=1e-3, burst=2e5)
    fit = fit_streams(made_by(truth, noise=0.003))
    assert fit.model.window == inf
    assert fit.model.bandwidth == pytest.approx(24e6, rel=5e-3)
    assert fit.model.burst == pytest.approx(2e5, rel=0.2)
    assert fit.errors == fit.without
    assert fit.errors.average == pytest.approx(0.0024, rel=0.3)  # of a normal, 0.8 sigma
    assert fit.largest == max(SIZES)


def test_a_measured_bandwidth_is_kept() -> None:
    truth = StreamModel(24e6, 1.0 * MB, alpha=3e-9, beta=2e-3)
    fit = fit_streams(made_by(truth), bandwidth=24e6)
    assert fit.model.bandwidth == 24e6
    assert fit.model.window == pytest.approx(MB, rel=0.01)
    assert fit.model.alpha == pytest.approx(3e-9, rel=0.05)


def test_some_streams_that_are_far_off_change_little() -> None:
    truth = StreamModel(24e6, alpha=1e-9, beta=1e-3)
    profile = made_by(truth)
    end = profile.end.copy()
    end[::7] += 0.5  # a stall in every seventh step
    fit = fit_streams(replace(profile, end=end))
    assert fit.model.bandwidth == pytest.approx(24e6, rel=0.03)
    assert fit.errors.median < 0.02
    assert fit.errors.maximum > 0.3


def test_the_calibration_says_that_it_was_estimated() -> None:
    found = calibration_of(fit_streams(made_by(StreamModel(24e6, 1.0 * MB))), "a job")
    assert found.bandwidth == found.bandwidth_in == pytest.approx(24e6, rel=1e-2)
    assert found.bandwidth_out is None
    assert found.window == pytest.approx(MB, rel=0.02)
    assert found.found["window"].how == "estimated"
    assert "a job" in found.found["window"].by


def test_what_tells_nothing_is_refused() -> None:
    profile = made_by(StreamModel(24e6), steps=2)
    with pytest.raises(InputError, match="nothing to fit"):
        fit_streams(replace(profile, size=np.zeros(len(SIZES), np.int64)))
    with pytest.raises(InputError, match="at least 1 B/s and finite, not 0"):
        fit_streams(profile, bandwidth=0.0)
    with pytest.raises(InputError, match="at least 1 B/s and finite, not 1e-300"):
        fit_streams(profile, bandwidth=1e-300)
    with pytest.raises(InputError, match="at least 1 B/s and finite, not inf"):
        fit_streams(profile, bandwidth=inf)
