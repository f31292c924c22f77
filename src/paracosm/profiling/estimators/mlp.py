"""The paper's estimator: a neural network on the raw arguments of an op.

Huang et al., section 2: "for each input argument we profile a fixed number of values, and use these
results to train a neural network to estimate the op performance". Two hidden layers of rectified
units; arguments and time on a logarithmic scale. scikit-learn fits it, arrays predict.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.errors import require
from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats, Layout, layout_of
from paracosm.profiling.estimators.roofline import Roofline

__all__ = ["Network", "fit_mlp"]

_HIDDEN = (24, 24)
_DECAY = 0.5  # L2 penalty
_MOST_ITERATIONS = 60  # of L-BFGS


@dataclass(frozen=True, eq=False)
class Network:
    """A fitted network; layer i maps `x` to `x @ weights[i] + biases[i]`.

    Attributes:
        layout: its input columns.
        weights, biases: of every layer.
        mean, scale: of the logarithm of the time among the samples; the network's output is
            standardised by them.
    """

    layout: Layout
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    mean: float
    scale: float

    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        """Return the logarithms of durations (seconds) and the scale of the error: one for all."""
        x = self.layout.matrix(ops)
        for weights, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weights + bias, 0.0)
        output = (x @ self.weights[-1] + self.biases[-1])[:, 0]
        return self.mean + self.scale * output, np.ones(len(ops))


def fit_mlp(ops: Sequence[Description], log_time: Floats, roofline: Roofline, seed: int) -> Network:
    """Return the network fitted to `ops`; it makes no use of the `roofline`.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    networks = require("sklearn.neural_network", "torch", "fitting estimators")
    layout = layout_of(ops, "raw")
    mean, scale = float(log_time.mean()), float(log_time.std()) or 1.0
    if not len(layout.mean):  # all samples alike in their arguments: a constant
        return Network(layout, (np.zeros((0, 1)),), (np.zeros(1),), mean, scale)
    regressor = networks.MLPRegressor(
        hidden_layer_sizes=_HIDDEN,
        solver="lbfgs",
        alpha=_DECAY,
        max_iter=_MOST_ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped early, as told to
        regressor.fit(layout.matrix(ops), (log_time - mean) / scale)
    weights = tuple(np.ascontiguousarray(each) for each in regressor.coefs_)
    return Network(layout, weights, tuple(regressor.intercepts_), mean, scale)
