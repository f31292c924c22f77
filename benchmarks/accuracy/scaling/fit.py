"""The scaling of a job from a few of its measured steps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from scaling.model import Scaling
from scaling.runs import Runs

__all__ = ["fit_scaling"]

Floats = npt.NDArray[np.float64]

FITTED = ("within", "pair", "several", "jitter", "hidden", "last", "spread")
NOISE = 0.05  # relative; residuals beyond it count linearly, so that an outlier does not pull
STARTS = [
    {"hidden": hidden, "jitter": jitter, "spread": spread}
    for hidden in (0.1, 0.4)
    for jitter in (0.01, 0.2)
    for spread in (0.01, 0.05)
]
"""Where the search begins: shares of the compute and relative standard deviations."""


def fit_scaling(runs: Runs) -> Scaling:
    """Return the scaling that explains measured steps, and what of them was exposed, best.

    Compute is the median at every batch of what of a step is not exposed (of steps of one replica,
    where nobody says). The other numbers minimise the sum of soft absolute residuals: of the
    logarithm of the step, and of what is exposed in proportion to the step. All are positive.

    Args:
        runs: steps on few GPUs; what is to be predicted on several nodes needs some on several.

    Raises:
        InputError: no step says how long a replica computes.
    """
    from scipy.optimize import least_squares

    batches, compute = _compute(runs)
    start = _start(runs, batches, compute)
    told = ~np.isnan(runs.exposed)

    def residuals(logarithms: Floats) -> Floats:
        times = _with(start, np.exp(logarithms)).predict(runs.nodes, runs.replicas, runs.batch)
        beyond = (times.exposed - runs.exposed)[told] / runs.step[told]
        return np.concatenate((np.log(times.step / runs.step), beyond))

    found = [
        least_squares(
            residuals,
            np.log([getattr(replace(start, **values), name) for name in FITTED]),
            loss="soft_l1",
            f_scale=NOISE,
        )
        for values in STARTS
    ]
    best = min(found, key=lambda result: float(result.cost))
    return _without_what_is_unknown(_with(start, np.exp(best.x)), runs)


def _compute(runs: Runs) -> tuple[Floats, Floats]:
    """Return the batches, ascending, and the seconds that a replica computes on each."""
    seconds = np.where(np.isnan(runs.exposed), runs.step, runs.step - runs.exposed)
    usable = (~np.isnan(runs.exposed)) | (runs.replicas == 1)
    if not bool(usable.any()):
        raise InputError("scaling: give steps of one replica, or what of a step is exposed")
    batches = np.unique(runs.batch[usable])
    medians = [float(np.median(seconds[usable & (runs.batch == batch)])) for batch in batches]
    return batches, np.array(medians)


def _start(runs: Runs, batches: Floats, compute: Floats) -> Scaling:
    """Return where the search begins: communication between nodes as exposed with small batches."""
    least = runs.batch == batches[0]
    across = (runs.nodes > 1) & least & ~np.isnan(runs.exposed)
    seconds = float(np.median(runs.exposed[across])) if bool(across.any()) else float(compute[0])
    return Scaling(
        batches=tuple(batches.tolist()),
        compute=tuple(compute.tolist()),
        within=0.1 * seconds,
        pair=seconds,
        several=seconds,
        last=0.03,
        **STARTS[0],
    )


def _with(scaling: Scaling, values: Floats) -> Scaling:
    return replace(scaling, **dict(zip(FITTED, values.tolist(), strict=True)))


def _without_what_is_unknown(scaling: Scaling, runs: Runs) -> Scaling:
    """Return the scaling with NaN, or 0, for what no run depends on."""
    one = (runs.nodes == 1) & (runs.replicas > 1)
    return replace(
        scaling,
        within=scaling.within if bool(one.any()) else math.nan,
        pair=scaling.pair if bool((runs.nodes == 2).any()) else math.nan,
        several=scaling.several if bool((runs.nodes > 2).any()) else math.nan,
        jitter=scaling.jitter if len(np.unique(runs.replicas[runs.replicas > 1])) > 1 else 0.0,
        spread=scaling.spread if bool((runs.replicas > 1).any()) else 0.0,
    )
