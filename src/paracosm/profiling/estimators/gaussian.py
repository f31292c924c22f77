"""A Gaussian process on derived quantities; the op type's roofline is its mean.

What it learns is the ratio of the time to the roofline. Far from all samples it returns to their
typical ratio, and its standard deviation says so. Rasmussen, Williams, "Gaussian Processes for
Machine Learning", 2006, algorithm 2.1; kernel: amplitude x Matern 3/2 with a length scale for every
column, and noise. scikit-learn fits it, arrays predict.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from paracosm.errors import require
from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats, Layout, layout_of
from paracosm.profiling.estimators.roofline import Roofline

__all__ = ["GaussianProcess", "fit_gaussian"]

# A few steps only: with some sixty samples and a dozen length scales, the optimum of the marginal
# likelihood is over-fitted (docs/estimators.md).
_MOST_ITERATIONS = 8
_MOST_SAMPLES = 256  # the rest is dropped at random: the fit is cubic in them
_LENGTH = 3.0
_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A fitted process over n samples in d columns.

    Attributes:
        roofline: its mean.
        layout: its input columns.
        points: (n, d), the samples' columns divided by the length scales.
        weights: (n,), the inverse covariance times the targets.
        factor: (n, n), lower Cholesky factor of the covariance.
        lengths: (d,), length scales.
        amplitude, noise: variances of the function and of a sample.
        mean, scale: of the logarithm of time over roofline among the samples; the process is
            standardised by them.
    """

    roofline: Roofline
    layout: Layout
    points: Floats
    weights: Floats
    factor: Floats
    lengths: Floats
    amplitude: float
    noise: float
    mean: float
    scale: float

    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        """Return the logarithms of durations (seconds) and their standard deviations."""
        here = self.layout.matrix(ops) / self.lengths
        covariance = self.amplitude * _matern(here, self.points)
        residual = covariance @ self.weights
        solved = solve_triangular(self.factor, covariance.T, lower=True, check_finite=False)
        explained = np.einsum("ij,ij->j", solved, solved)
        variance = np.maximum(self.amplitude - explained, 0.0) + self.noise
        log_time = self.roofline.log_time(ops) + self.mean + self.scale * residual
        return log_time, self.scale * np.sqrt(variance)


def fit_gaussian(
    ops: Sequence[Description], log_time: Floats, roofline: Roofline, seed: int
) -> GaussianProcess:
    """Return the process fitted to the ratios of `ops` to their `roofline`.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    processes = require("sklearn.gaussian_process", "torch", "fitting estimators")
    kernels = require("sklearn.gaussian_process.kernels", "torch", "fitting estimators")
    if len(ops) > _MOST_SAMPLES:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(ops))[:_MOST_SAMPLES])
        ops, log_time = [ops[i] for i in chosen], log_time[chosen]
    layout = layout_of(ops, "derived")
    x = layout.matrix(ops)
    residual = log_time - roofline.log_time(ops)
    mean, scale = float(residual.mean()), max(float(residual.std()), 1e-3)
    if not x.shape[1]:  # samples alike in all that is known of them: their mean, and their spread
        alone = np.zeros((1, 0))
        one = np.ones((1, 1))
        return GaussianProcess(
            roofline, layout, alone, np.zeros(1), one, np.ones(0), 0.0, 1.0, mean, scale
        )
    kernel = kernels.ConstantKernel(1.0, (1e-2, 1e2)) * kernels.Matern(
        np.full(x.shape[1], _LENGTH), (0.1, 1e3), nu=1.5
    ) + kernels.WhiteKernel(_NOISE, (1e-4, 1.0))
    process = processes.GaussianProcessRegressor(kernel, alpha=1e-8, optimizer=_few_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped early, as told to
        process.fit(x, (residual - mean) / scale)
    function, white = process.kernel_.k1, process.kernel_.k2
    # Contiguous, as they come back from a file: so they add up in the same order.
    lengths = np.array(function.k2.length_scale, dtype=np.float64, order="C").reshape(-1)
    return GaussianProcess(
        roofline=roofline,
        layout=layout,
        points=np.ascontiguousarray(x / lengths),
        weights=np.ascontiguousarray(process.alpha_),
        factor=np.ascontiguousarray(process.L_),
        lengths=lengths,
        amplitude=float(function.k1.constant_value),
        noise=float(white.noise_level),
        mean=mean,
        scale=scale,
    )


def _few_steps(
    objective: Callable[[Floats], Any], initial_theta: Floats, bounds: Floats
) -> tuple[Floats, float]:
    """Minimise as scikit-learn does by default, but stop early; the names are its own."""
    options = {"maxiter": _MOST_ITERATIONS}
    found = minimize(
        objective, initial_theta, method="L-BFGS-B", jac=True, bounds=bounds, options=options
    )
    return found.x, float(found.fun)


def _matern(left: Floats, right: Floats) -> Floats:
    """Return the Matern 3/2 correlation of every row of `left` with every row of `right`."""
    difference = left[:, None, :] - right[None, :, :]
    distance = math.sqrt(3.0) * np.sqrt(np.einsum("ijk,ijk->ij", difference, difference))
    return np.asarray((1.0 + distance) * np.exp(-distance))
