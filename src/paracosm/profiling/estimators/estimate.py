"""The estimated duration of one op, with its interval and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LEVEL", "SOURCES", "Estimate", "estimate_around"]

LEVEL = 0.9
"""Share of ops whose measured duration lies within the interval of their estimate."""

SOURCES = ("exact", "interpolated", "estimated", "unknown")
"""Timed itself; scaled from a neighbour; from an estimator of its op type; from the whole device's
roofline, because no op of its type was timed."""

_WIDEST = 20.0  # of the logarithm: exp(20) either way says "anything", and is finite


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long an op takes.

    Attributes:
        duration: seconds of one call, the mean.
        low, high: ends of the interval, seconds; the op's mean lies in it with probability `LEVEL`.
        source: one of `SOURCES`.
        method: the estimator: "exact", "nearest", "roofline", "mlp", "gaussian".
    """

    duration: float
    low: float
    high: float
    source: str
    method: str


def estimate_around(log_time: float, half_width: float, source: str, method: str) -> Estimate:
    """Return the estimate exp(log_time) with an interval of `half_width` in its logarithm."""
    duration = math.exp(log_time)
    factor = math.exp(min(half_width, _WIDEST))
    return Estimate(duration, duration / factor, duration * factor, source, method)
