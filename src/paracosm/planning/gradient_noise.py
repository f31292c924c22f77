"""The gradient noise scale: the number of examples at which signal exceeds noise. It is measured
along the run of one worker, with gradients of other minibatches at its current parameters.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from paracosm.errors import InputError
from paracosm.training import TrainConfig
from paracosm.training.numerics.prepare import prepare_numerics

MINIBATCHES = 16
"""At each point; the signal is then known where the noise scale is below some dozens of batches."""

POINTS = 12
"""Maximum per run, in addition to its start."""


class GradientNoise(NamedTuple):
    """Signal and noise of gradients at one point, or their means over some.

    Attributes:
        signal: |G|^2, the squared norm of the gradient over all examples; an estimate may be
            negative.
        variance: tr(Sigma), of the gradient of one example.
    """

    signal: float
    variance: float

    @property
    def scale(self) -> float:
        """B_simple = tr(Sigma) / |G|^2, examples; infinite without a positive signal."""
        return self.variance / self.signal if self.signal > 0 else math.inf


def measure_noise(config: TrainConfig, seed: int, at: Sequence[int]) -> list[GradientNoise]:
    """Train with one worker, and measure the noise of its gradients on the way.

    The run has the initial model and the minibatches of worker 0 in any run of that seed; noise is
    estimated from the minibatches that further workers would have.

    Args:
        config: model, data, batch, optimizer and learning rate; clients and availability have no
            effect.
        seed: of the run.
        at: n numbers of updates, ascending, after which to measure.

    Returns:
        n measurements. A run that has diverged gives values that are not finite.
    """
    alone = config.model_copy(
        update={"shards": "shared"}
    )  # a single worker draws from all examples
    numerics = prepare_numerics(alone, seed, 1 + MINIBATCHES, 1)
    size = numerics.batch_of(0)
    noises: list[GradientNoise] = []
    try:
        parameters, rule = numerics.initial(), numerics.rule()
        for update in range(at[-1] + 1):
            if update == at[len(noises)]:
                pending = [
                    numerics.request(other, parameters) for other in range(1, 1 + MINIBATCHES)
                ]
                gradients = [future.result().gradient for future in pending]
                squares = [float(gradient.double().square().sum()) for gradient in gradients]
                mean = sum(gradient.double() for gradient in gradients) / MINIBATCHES
                noises.append(estimate_noise(squares, float(mean.square().sum()), size))
            if update < at[-1]:
                gradient = numerics.request(0, parameters).result().gradient
                gradient = numerics.recipe.clipped(gradient)
                parameters = rule(parameters, gradient, numerics.recipe.lr_factor(update))
    finally:
        numerics.close()
    return noises


def estimate_noise(
    squared_norms: Sequence[float], squared_norm_of_mean: float, batch: int
) -> GradientNoise:
    """Estimate signal and noise from the gradients of k independent minibatches at one point.

    |G|^2 = (B_big |G_big|^2 - B |G_small|^2) / (B_big - B) and
    tr(Sigma) = (|G_small|^2 - |G_big|^2) / (1 / B - 1 / B_big), where G_small is of a minibatch of
    B examples (its square here a mean over k of them), and G_big the mean of all, B_big = k B
    (McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", 2018, appendix
    A.1). Both are unbiased, their quotient is not: it should be of means over several points.

    Args:
        squared_norms: k squared norms of the minibatches' gradients, two or more.
        squared_norm_of_mean: the squared norm of the mean of these gradients.
        batch: examples of a minibatch.
    """
    count = len(squared_norms)
    if count < 2:
        raise InputError(f"gradient noise: {count} minibatch(es) given, 2 or more are needed")
    small, big = math.fsum(squared_norms) / count, squared_norm_of_mean
    return GradientNoise(
        signal=(count * big - small) / (count - 1),
        variance=batch * count * (small - big) / (count - 1),
    )


def points_of_run(updates: int) -> list[int]:
    """Return numbers of updates at which to measure a run: its start, then ever further apart.

    Gradients change fastest at first. They are `POINTS` at most, in geometric progression, and end
    before the last update.
    """
    if updates < 2:
        return [0]
    spaced = np.geomspace(1, updates - 1, POINTS).round().astype(int)
    return [0, *np.unique(spaced).tolist()]
