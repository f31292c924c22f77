"""Intervals from errors on held-out ops, as in split conformal prediction.

Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005; with errors divided by a
scale: Lei et al., "Distribution-free predictive inference for regression", Journal of the American
Statistical Association 113, 2018, section 5.2. The interval of an op with scale s is
exp(log_time +- q s), q the quantile that `conformal` returns.
"""

from __future__ import annotations

import math

import numpy as np

from paracosm.profiling.estimators.estimate import LEVEL
from paracosm.profiling.estimators.features import Floats

__all__ = ["LEAST", "conformal"]

LEAST = 10
"""Held-out errors that a quantile needs (at 90 %, nine): samples of a type that is learned."""


def conformal(scores: Floats, otherwise: float) -> float:
    """Return the value below which the next score lies with probability `LEVEL`.

    Args:
        scores: absolute errors over their scales, of ops that no fit had seen.
        otherwise: what to return if they are fewer than `LEAST`.
    """
    if len(scores) < LEAST:
        return otherwise
    rank = min(math.ceil((len(scores) + 1) * LEVEL), len(scores))
    return float(np.sort(scores)[rank - 1])
