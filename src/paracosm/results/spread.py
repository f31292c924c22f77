"""Medians and intervals of times to a target, some of them infinite."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt

import numpy as np

from paracosm.units import format_between, format_duration

SHARE = 0.8
"""Share of further runs that an interval should cover."""


@dataclass(frozen=True)
class Spread:
    """A median and a prediction interval with coverage `SHARE`. Infinite where runs never reached
    the target.
    """

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return median and prediction interval of positive values, some of them infinite.

    The interval is that of one further value of a log-normal distribution, of which n were seen:
    exp(m +- t s sqrt(1 + 1/n)), with mean m and standard deviation s of the logarithms, and t the
    quantile (1 + SHARE) / 2 of Student's distribution with n - 1 degrees of freedom (Hahn, Meeker,
    "Statistical Intervals", 1991). Percentiles of five values would hold too few: the
    span from the least to the greatest holds (n - 1) / (n + 1) = 67 % of further ones. Where some
    values are infinite, it is the percentiles 10 and 90, infinite ones being the greatest; of a
    single value, the value.

    Raises:
        ValueError: there is no value.
    """
    if not len(values):
        raise ValueError("no value")
    ordered = sorted(values)
    median = _percentile(ordered, 0.5)
    finite = [log(value) for value in ordered if isfinite(value)]
    if len(finite) < len(ordered) or len(ordered) == 1:
        low, high = (_percentile(ordered, (1 + sign * SHARE) / 2) for sign in (-1, 1))
        return Spread(median, min(low, median), max(high, median))
    from scipy.stats import t

    count = len(finite)
    reach = float(t.ppf((1 + SHARE) / 2, count - 1)) * sqrt(1 + 1 / count)
    mean, deviation = float(np.mean(finite)), float(np.std(finite, ddof=1))
    low, high = exp(mean - reach * deviation), exp(mean + reach * deviation)
    # Without deviation, rounding of the exponential would leave the median out.
    return Spread(median, min(low, median), max(high, median))


def seeds_within(spread: Spread, write: Callable[[float], str]) -> str:
    """Return "80 % of seeds within 37 to 46 s", by a function that writes a value."""
    _, within = format_between(spread.low, spread.median, spread.high, write)
    low, high = within.split(" to ")
    if low.split()[-1] == high.split()[-1]:
        within = f"{low.split()[0]} to {high}"
    return f"{SHARE * 100:.0f} % of seeds within {within}"


def seconds_or_never(seconds: float | None) -> str:
    """Return a time to the target, to three digits."""
    if seconds is None or seconds == inf:
        return "never"
    return format_duration(float(f"{seconds:.3g}"))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between order statistics, as numpy does; infinity wins."""
    place = share * (len(ordered) - 1)
    below, part = int(place), place - int(place)
    low = ordered[below]
    high = ordered[min(below + 1, len(ordered) - 1)]
    if part == 0 or low == high:
        return low
    return inf if high == inf else low + part * (high - low)


def paired_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of value over other, seed by seed.

    Pairs share initial model and minibatches, so most of the variation between seeds cancels. A run
    that never reached the target takes longer than any that did; pairs of two such runs say
    nothing. NaN where no pair is left.
    """
    ratios = _ratios(values, others)
    return _percentile(sorted(ratios), 0.5) if ratios else nan


def are_told_apart(values: Sequence[float], others: Sequence[float]) -> bool:
    """Whether paired values differ beyond the spread of their ratios, at the level `SURE`.

    By Student's t of the logarithms of ratios; where a run never reached the target, by the sign
    test: how likely so few ratios would be on one side of 1 if both sides were as likely. What one
    pair says, no other confirms.
    """
    from scipy.stats import binomtest, t

    ratios = _ratios(values, others)
    if len(ratios) < 2:
        return False
    if not all(0 < ratio < inf for ratio in ratios):
        sides = [ratio < 1 for ratio in ratios if ratio != 1]
        return bool(sides) and binomtest(sum(sides), len(sides)).pvalue < 1 - SURE
    logarithms = np.log(ratios)
    reach = float(t.ppf((1 + SURE) / 2, len(ratios) - 1)) / sqrt(len(ratios))
    return bool(abs(logarithms.mean()) > reach * logarithms.std(ddof=1) + _ROUNDING)


SURE = 0.9
"""Confidence with which two designs are told apart."""

_ROUNDING = 1e-12


def _ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [
        inf if other == 0 or value == inf else value / other
        for value, other in zip(values, others, strict=True)
        if isfinite(value) or isfinite(other)
    ]
