from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.planning.baselines import SingleWorker, efficiency, predict_baselines
from paracosm.planning.gradient_noise import GradientNoise

RUN = SingleWorker(
    batch=10,
    updates=100,
    measured_at=[0, 50],
    noise=[GradientNoise(1.0, 20.0), GradientNoise(3.0, 240.0)],
)


def test_three_predictors_by_hand() -> None:
    # 1,000 examples at 100 a second take 10 s. Noise scales of 20 and 80 examples make batches of
    # 40 as good as (20 + 10) / (20 + 40) = 1/2 and 90 / 120 = 3/4; of the whole run it is
    # (20 + 240) / (1 + 3) = 65, and (65 + 40) / (65 + 10) = 1.4.
    found = predict_baselines(RUN, 40, 100.0)
    assert found.constant_updates == pytest.approx(10)
    assert found.goodput == pytest.approx(5 * 2 + 5 * 4 / 3)
    assert found.critical_batch == pytest.approx(14)


def test_measurements_hold_until_the_next_and_those_beyond_the_end_never() -> None:
    noise = GradientNoise(1.0, 20.0), GradientNoise(1.0, 80.0), GradientNoise(1.0, 1e9)
    run = SingleWorker(10, 100, [20, 25, 100], noise)
    found = predict_baselines(run, 40, 100.0)
    assert found.goodput == pytest.approx(10 * (0.25 * 2 + 0.75 * 4 / 3))
    assert found.critical_batch == pytest.approx(10 * (65 + 40) / (65 + 10))


def test_a_run_without_a_signal_loses_nothing_by_large_batches() -> None:
    run = replace(RUN, noise=[GradientNoise(-1.0, 20.0), GradientNoise(-3.0, 240.0)])
    assert predict_baselines(run, 1e6, 100.0) == pytest.approx((10, 10, 10))


def test_the_critical_batch_takes_twice_the_examples_and_twice_the_updates() -> None:
    # McCandlish et al. 2018, section 2.3, of the least that tiny and endless batches take.
    scale, tiny, endless = 500.0, 1e-9, 1e12
    examples = 1 / float(efficiency(scale, tiny, scale))
    assert examples == pytest.approx(2)
    updates = (1 / scale) / float(efficiency(scale, endless, scale)) * endless
    assert updates == pytest.approx(2)


@given(
    st.floats(1e-3, 1e6),
    st.floats(1, 1e4),
    st.floats(1, 1e4),
    st.floats(1, 1e5),
)
def test_one_noise_scale_makes_goodput_and_mccandlish_one(
    scale: float, base: float, batch: float, updates: float
) -> None:
    noise = [GradientNoise(2.0, 2.0 * scale), GradientNoise(0.5, 0.5 * scale)]
    run = SingleWorker(int(base), updates, [0, updates / 3], noise)
    constant, goodput, critical = predict_baselines(run, batch, 50.0)
    assert goodput == pytest.approx(critical)
    # S / S_min = 1 + B_noise / B updates, each of so many examples.
    least = updates / (1 + scale / int(base))
    assert critical == pytest.approx(least * (1 + scale / batch) * batch / 50.0)
    assert (goodput >= constant * (1 - 1e-12)) == (batch >= int(base))


@pytest.mark.parametrize(
    ("run", "batch", "rate", "said"),
    [
        (RUN, 0, 100.0, "a batch of 0"),
        (RUN, 40, math.inf, "a rate in examples/s of inf"),
        (replace(RUN, updates=math.nan), 40, 1.0, "a number of updates of nan"),
        (replace(RUN, measured_at=[50, 0]), 40, 1.0, "ascending"),
        (replace(RUN, measured_at=[0]), 40, 1.0, "2 noise scales measured at 1"),
        (replace(RUN, measured_at=[], noise=[]), 40, 1.0, "0 noise scales"),
    ],
)
def test_what_cannot_be_used(run: SingleWorker, batch: float, rate: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        predict_baselines(run, batch, rate)
