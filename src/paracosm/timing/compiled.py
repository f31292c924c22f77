"""Draws of durations inside compiled loops: distributions as plain arrays, and one function.

    draws = tabulate([Normal(10, 3), Exponential(2)])
    draw(draws, 0, uniform(key, index), index)  # inside a Numba loop

`draw` gives what `Distribution.from_uniform` gives for the same uniform number, to rounding.
Importing this module imports Numba, so the room's `__init__` leaves it alone.
"""

# Numba infers the types of compiled functions; mypy is told the same once, at `_compiled`.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np

from paracosm.timing.compiled_gamma import gamma_quantile
from paracosm.timing.compiled_normal import normal_quantile
from paracosm.timing.compiled_pointer import data_pointer
from paracosm.timing.compiled_streams import uniform
from paracosm.timing.compiled_tables import (
    CONSTANT,
    EMPIRICAL,
    EXPONENTIAL,
    GAMMA,
    LOG_KERNEL_DENSITY,
    LOGNORMAL,
    NORMAL,
    PAIRS,
    RECORDED,
    RECORDED_CYCLE,
    SLOWDOWNS,
    SPEED,
    UNIFORM,
    WEIBULL,
    A,
    B,
    C,
    Draws,
    tabulate,
)

__all__ = ["Draws", "draw", "tabulate", "uniform"]

_LEAST, _GREATEST = 2.0**-54, 1 - 2.0**-53  # as `distribution.inside`


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], numba.njit(cache=True, error_model="numpy")(function))


def _inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    # As a call, passing on the five arrays' 40 words costs more than most draws.
    inlined = numba.njit(cache=True, error_model="numpy", forceinline=True)
    return cast(Callable[..., Any], inlined(function))


@_inlined
def draw(draws: Any, row: Any, uniform: Any, index: Any) -> Any:
    """Return one duration of the distribution in `row`, in seconds.

    `uniform` is in (0, 1), as `uniform(key, index)` gives it. `index` says how many draws this
    stream had before; only a recording asks. NaN: a recording is exhausted.
    """
    # The arrays are let go of here: held through the branches, they cost ten atomic operations.
    own = np.int64(row) * draws.parameters.shape[1]
    parameters = data_pointer(draws.parameters)
    values = data_pointer(draws.values)
    kind, first, count = draws.kind[row], draws.first[row], draws.count[row]

    levels = int(parameters[own + SLOWDOWNS])
    factor = 1.0
    for level in range(levels):
        p = parameters[own + PAIRS + 2 * level]
        if uniform < p:
            factor *= parameters[own + PAIRS + 2 * level + 1]
            uniform = _inside(uniform / p)
        else:
            uniform = _inside((uniform - p) / (1.0 - p))
    a, b = parameters[own + A], parameters[own + B]
    if kind == CONSTANT:
        duration = a
    elif kind == UNIFORM:
        duration = a + b * uniform
    elif kind == NORMAL:
        duration = _truncated_normal(uniform, a, b, parameters[own + C])
    elif kind == LOGNORMAL:
        duration = a * math.exp(b * normal_quantile(uniform))
    elif kind == EXPONENTIAL:
        duration = -a * math.log1p(-uniform)
    elif kind == WEIBULL:
        duration = a * (-math.log1p(-uniform)) ** b
    elif kind == GAMMA:
        duration = a * gamma_quantile(values, first, count, uniform)
    elif kind == RECORDED:
        duration = values[first + np.int64(index)] if index < count else math.nan
    elif kind == RECORDED_CYCLE:
        duration = values[first + np.int64(index) % count]
    else:
        scaled = uniform * count
        chosen = min(int(scaled), count - 1)
        rest = _inside(scaled - chosen)
        if kind == EMPIRICAL:
            duration = values[first + chosen]
        elif kind == LOG_KERNEL_DENSITY:
            duration = values[first + chosen] * math.exp(a * normal_quantile(rest))
        else:  # a sample, and the mass of its kernel that is not negative
            at = first + 2 * chosen
            duration = _truncated_normal(rest, values[at], a, values[at + 1])
    if levels > 0:
        duration *= factor
    speed = parameters[own + SPEED]
    return duration / speed if speed != 1.0 else duration


@_compiled
def _truncated_normal(uniform: Any, mu: Any, sd: Any, mass: Any) -> Any:
    """As `families.truncated_normal`; `mass` is Phi(mu / sd)."""
    return max(mu - sd * normal_quantile(min((1.0 - uniform) * mass, _GREATEST)), 0.0)


@_compiled
def _inside(uniform: Any) -> Any:
    return min(max(uniform, _LEAST), _GREATEST)
