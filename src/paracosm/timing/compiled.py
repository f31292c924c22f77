"""Draws of durations inside compiled loops: distributions as plain arrays, and one function.

    draws = tabulate([Normal(10, 3), Exponential(2)])
    draw(draws, 0, uniform(key, index), index)  # inside a Numba loop

`draw` gives what `Distribution.from_uniform` gives for the same uniform number, to rounding.
Importing this module imports Numba, so the room's `__init__` leaves it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic

from paracosm.compiled import compiled, inlined
from paracosm.timing.tables import (
    CONSTANT,
    EMPIRICAL,
    EXPONENTIAL,
    GAMMA,
    GREATEST_SCORE,
    LEAST_SCORE,
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

__all__ = ["Draws", "data_pointer", "draw", "normal_quantile", "tabulate", "uniform"]


_LEAST, _GREATEST = 2.0**-54, 1 - 2.0**-53  # as `distribution.inside`


@inlined
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


@compiled
def _truncated_normal(uniform: Any, mu: Any, sd: Any, mass: Any) -> Any:
    """As `families.truncated_normal`; `mass` is Phi(mu / sd)."""
    return max(mu - sd * normal_quantile(min((1.0 - uniform) * mass, _GREATEST)), 0.0)


@compiled
def _inside(uniform: Any) -> Any:
    return min(max(uniform, _LEAST), _GREATEST)


@compiled
def gamma_quantile(values: Any, first: Any, count: Any, u: Any) -> Any:
    """Return the quantile at `u` of a gamma of mean 1, from its table `values[first:][:count]`."""
    intervals = count // 8
    position = (normal_quantile(u) - LEAST_SCORE) * (intervals / (GREATEST_SCORE - LEAST_SCORE))
    interval = min(max(int(position), 0), intervals - 1)
    t = 2.0 * (position - interval) - 1.0
    at = first + 8 * interval
    low = (values[at + 3] * t + values[at + 2]) * t * t + (values[at + 1] * t + values[at])
    high = (values[at + 7] * t + values[at + 6]) * t * t + (values[at + 5] * t + values[at + 4])
    return math.exp(high * (t * t) * (t * t) + low)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled
def uniform(key: Any, index: Any) -> Any:
    """Return number `index` (0, 1, ...) of the stream `key`: a multiple of 2^-53 in (0, 1).

    SplitMix64, counted instead of stepped: Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014, figure 15 (with the constants of its reference code). A 0 becomes
    2^-54, as `distribution.inside` makes it.
    """
    bits = np.uint64(key) + (np.uint64(index) + np.uint64(1)) * _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND_FACTOR
    bits = bits ^ (bits >> np.uint64(31))
    return max(np.float64(bits >> np.uint64(11)) * 2.0**-53, _LEAST)


@compiled
def normal_quantile(p: Any) -> Any:
    """Return z with Phi(z) = `p`, for `p` in (0, 1), to about 16 digits.

    Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
    Statistics 37, 1988, routine PPND16: rational functions of `p` in the middle and of
    sqrt(-log(tail)) in the tails.
    """
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        above = (
            ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r
            + 6.7265770927008700853e4) * r + 4.5921953931549871457e4) * r
            + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
            + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
        )  # fmt: skip
        below = (
            ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r
            + 3.9307895800092710610e4) * r + 2.1213794301586595867e4) * r
            + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
            + 4.2313330701600911252e1) * r + 1.0
        )  # fmt: skip
        return q * above / below
    r = math.sqrt(-math.log(p if q < 0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        above = (
            ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r
            + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0) * r
            + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
            + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        )  # fmt: skip
        below = (
            ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r
            + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1) * r
            + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
            + 2.05319162663775882187e0) * r + 1.0
        )  # fmt: skip
    else:
        r -= 5.0
        above = (
            ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r
            + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r
            + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
            + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        )  # fmt: skip
        below = (
            ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r
            + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r
            + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
            + 5.99832206555887937690e-1) * r + 1.0
        )  # fmt: skip
    return -above / below if q < 0 else above / below


def _data_pointer(context: Any, array: Any) -> Any:
    """Return the address of a C-contiguous array's first element, to be indexed like a flat one.

    For functions that are called in a tight loop and read arrays in several branches: Numba would
    count the references to each array up and down at every call, about 2.5 ns each time. The caller
    keeps the array alive.
    """

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return target.make_array(signature.args[0])(target, builder, arguments[0]).data

    pointer = cast(Callable[..., Any], types.CPointer)
    return pointer(array.dtype)(array), generate


data_pointer = cast(Callable[..., Any], intrinsic(_data_pointer))
