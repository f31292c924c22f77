"""Random streams for compiled loops: a uniform number from a key and an index, and no state.

A draw's number is known without the draws before it, so a loop needs one counter a stream, and two
runs that consume their streams in different orders still see common random numbers.
"""

# Numba infers the types of compiled functions; mypy is told the same once, at `_compiled`.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np

__all__ = ["uniform"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LEAST = 2.0**-54


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], numba.njit(cache=True, error_model="numpy")(function))


@_compiled
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
