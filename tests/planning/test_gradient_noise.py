from __future__ import annotations

import math
from itertools import combinations

import mean_of_data
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paracosm.errors import InputError
from paracosm.planning.gradient_noise import (
    MINIBATCHES,
    GradientNoise,
    estimate_noise,
    measure_noise,
    points_of_run,
)
from paracosm.training import TrainConfig


def test_two_gradients_by_hand() -> None:
    # (3, 1) and (1, 1) of 8 examples each: their mean (2, 1) has the square 5, they themselves 10
    # and 2; the product of the two is 4. Half the square of their difference, 2, is the variance of
    # a minibatch, and 8 times that of an example.
    noise = estimate_noise([10.0, 2.0], 5.0, 8)
    assert noise == (4.0, 16.0)
    assert noise.scale == 4.0


@given(arrays(np.float64, (5, 3), elements=st.floats(-100, 100)), st.integers(1, 100))
def test_signal_is_the_mean_product_of_pairs(gradients: np.ndarray, batch: int) -> None:
    squares = np.sum(gradients**2, axis=1)
    mean = gradients.mean(axis=0)
    noise = estimate_noise(squares.tolist(), float(mean @ mean), batch)
    pairs = [float(a @ b) for a, b in combinations(gradients, 2)]
    assert noise.signal == pytest.approx(np.mean(pairs), abs=1e-8, rel=1e-9)
    variance = float(gradients.var(axis=0, ddof=1).sum())
    assert noise.variance == pytest.approx(batch * variance, abs=1e-6, rel=1e-9)


def test_estimates_are_unbiased() -> None:
    rng = np.random.default_rng(3)
    true, deviation, batch = np.array([0.3, -0.4]), 2.0, 4
    found = []
    for _ in range(4000):
        gradients = true + deviation / math.sqrt(batch) * rng.standard_normal((4, 2))
        mean = gradients.mean(axis=0)
        squares = (gradients**2).sum(axis=1).tolist()
        found.append(estimate_noise(squares, float(mean @ mean), batch))
    signal, variance = np.mean(found, axis=0)
    assert signal == pytest.approx(0.25, abs=0.03)  # three standard errors of the mean
    assert variance == pytest.approx(8.0, abs=0.25)
    assert any(noise.signal < 0 for noise in found)


def test_no_signal_is_an_endless_scale() -> None:
    assert GradientNoise(-0.1, 2.0).scale == math.inf
    assert GradientNoise(math.nan, 2.0).scale == math.inf
    with pytest.raises(InputError, match="1 minibatch"):
        estimate_noise([1.0], 1.0, 8)


def test_without_noise_the_signal_is_that_of_gradient_descent() -> None:
    # A minibatch of everything: each update brings w nearer to the mean of x by a factor 1 - lr.
    config = TrainConfig(
        model="mean_of_data:model", data="mean_of_data:data", batch=mean_of_data.EXAMPLES, lr=0.25
    )
    found = measure_noise(config, 0, [0, 1, 5])
    away = np.sum((mean_of_data.START - mean_of_data.examples().mean(axis=0)) ** 2)
    expected = away * 0.75 ** np.array([0, 2, 10])
    assert [noise.signal for noise in found] == pytest.approx(expected.tolist(), rel=1e-5)
    assert [noise.variance for noise in found] == pytest.approx([0, 0, 0], abs=0.1)


def test_noise_of_a_quadratic_is_the_spread_of_its_data() -> None:
    lr, batch, at = 0.1, 32, [0, 10, 40]
    config = TrainConfig(model="mean_of_data:model", data="mean_of_data:data", batch=batch, lr=lr)
    found = measure_noise(config, 1, at)
    x = mean_of_data.examples().astype(np.float64)
    trace = float(x.var(axis=0).sum())
    away = float(np.sum((mean_of_data.START - x.mean(axis=0)) ** 2))
    for update, noise in zip(at, found, strict=True):
        # What is left of the start, and the sum of lr (1 - lr)^k of the noise k updates before.
        left = (1 - lr) ** (2 * update)
        wandering = lr * (1 - left) / (2 - lr) * trace / batch
        assert noise.variance == pytest.approx(trace, rel=0.12)
        error = 3 * trace / batch / MINIBATCHES  # of a product of means of so many minibatches
        assert noise.signal == pytest.approx(left * away + wandering, rel=0.15, abs=error)
    assert measure_noise(config, 1, at) == found
    assert measure_noise(config, 2, at) != found


@pytest.mark.parametrize("updates", [1, 2, 3, 50, 243, 10_000])
def test_points_of_a_run_are_ascending_and_within_it(updates: int) -> None:
    points = points_of_run(updates)
    assert points[0] == 0
    assert points == sorted(set(points))
    assert points[-1] < updates
    assert len(points) <= 13
