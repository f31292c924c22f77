"""The problem of section 4.1: a 10 x 10 grid, ten processors, updates of ten units of time."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.problems import load_problem
from paracosm.timing import Empirical

SIDE = PROCESSORS = 10
UPDATE = 10.0  # units of time
READS = ("start", "completion")

# Levels at which the normal distribution is tabulated.
_LEVELS = 512


@cache
def right_hand_side(seed: int, side: int = SIDE) -> NDArray[np.float64]:
    """Return b: uniform between -0.5 and 0.5, then normalised (section 4.1)."""
    b = np.random.default_rng(seed).uniform(-0.5, 0.5, side * side)
    return b / np.linalg.norm(b)


@cache
def whole_units(variance: float) -> Empirical:
    """Return N(10, variance) in whole units of time, 1 at least, as Algorithm 2 has them.

    That is no detail: updates of different processors end at the same instant, and then all of
    them are written before any processor reads.
    """
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    units = np.maximum(1.0, np.rint(UPDATE + np.sqrt(variance) * ndtri(levels)))
    return Empirical(tuple(units.tolist()))


def solve(seed: int, time: Any = UPDATE, **more: Any) -> RelaxationResult:
    """Solve the problem with right-hand side number `seed`; `more` goes to `relax`."""
    return relax(
        _matrix(), right_hand_side(seed), processors=PROCESSORS, time=time, seed=seed, **more
    )


@cache
def _matrix() -> Any:
    return load_problem(f"laplace2d:{SIDE}").A
