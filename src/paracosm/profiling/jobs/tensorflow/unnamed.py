"""Which receive is of which tensor, where a timeline has left out the names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["match_by_time"]

Floats = npt.NDArray[np.float64]

_ROUNDED = 2e-6  # a timeline has whole microseconds
_IMPOSSIBLE = 1e6
_UNLIKELY = 1e3  # the sender has another clock


def match_by_time(
    sent: Floats, needed: Floats, received: Sequence[tuple[float, float]]
) -> npt.NDArray[np.int64]:
    """Return by tensor which of the receives is its, for as many of each.

    A tensor is received before the ops that need it begin, and after the op that sends it; among
    the pairings that are possible the one with the shortest waits, squared, is taken.

    Args:
        sent: seconds at which each tensor was there.
        needed: seconds at which the first op that needs it began; inf of none.
        received: begin and end of each receive.
    """
    from scipy.optimize import linear_sum_assignment

    begin, end = (np.array(times) for times in zip(*received, strict=True))
    late = end[None, :] - needed[:, None]
    early = sent[:, None] - begin[None, :]
    waits = np.where(np.isfinite(late), late, 0.0) ** 2 + early**2
    cost = waits + _IMPOSSIBLE * (late > _ROUNDED) + _UNLIKELY * (early > _ROUNDED)
    return np.asarray(linear_sum_assignment(np.nan_to_num(cost, nan=_IMPOSSIBLE))[1], np.int64)
