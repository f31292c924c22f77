"""How often to save: intervals between checkpoints, and how long a job then takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, expm1, inf, sqrt

from paracosm.errors import InputError


def young_interval(cost: float, mtbf: float) -> float:
    """Return sqrt(2 c M) seconds.

    Source: Young, "A First Order Approximation to the Optimum Checkpoint Interval", CACM 17(9),
    1974.

    Args:
        cost: c, the seconds that one checkpoint takes.
        mtbf: M, the mean time between failures, in seconds.

    Raises:
        InputError: a negative or infinite cost, or a time between failures that is not above 0.
    """
    _check(cost, mtbf)
    return sqrt(2 * cost * mtbf)


def daly_interval(cost: float, mtbf: float) -> float:
    """Return sqrt(2 c M) [1 + sqrt(c / 2M) / 3 + (c / 2M) / 9] - c seconds; M where c >= 2M.

    Source: Daly, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps",
    Future Generation Computer Systems 22, 2006. The arguments are those of `young_interval`.

    Raises:
        InputError: as `young_interval`.
    """
    _check(cost, mtbf)
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return sqrt(2 * cost * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost


INTERVALS: Mapping[str, Callable[[float, float], float]] = {
    "young": young_interval,
    "daly": daly_interval,
}
"""Intervals by the name of who suggests them."""


def expected_makespan(
    work: float, interval: float, cost: float, restart: float, mtbf: float
) -> float:
    """Return the expected M e^(R / M) (e^((tau + c) / M) - 1) T / tau seconds of a job.

    Failures come at exponential intervals with mean M, during checkpoints and restarts too. It is
    exact where every tau seconds of the work T, the last ones included, end in a checkpoint.

    Source: Daly 2006 (see `daly_interval`), the complete cost function.

    Args:
        work: T, seconds that the job takes without failures and checkpoints.
        interval: tau, seconds of work between two checkpoints.
        cost: c, the seconds that one checkpoint takes.
        restart: R, seconds from a failure until the work goes on.
        mtbf: M, the mean time between failures of the job, in seconds; infinite without any.

    Returns:
        Infinite where a segment hardly ever ends without a failure.

    Raises:
        InputError: a negative time, or an interval or a time between failures that is not above 0.
    """
    if mtbf != inf:
        _check(cost, mtbf)
    if not (interval > 0 and restart >= 0 and work >= 0):
        raise InputError(
            "a job needs an interval between checkpoints above 0, and work and a restart of 0 "
            f"seconds or more, not {interval}, {work} and {restart}"
        )
    if mtbf == inf:
        return work * (1 + cost / interval)
    try:
        return mtbf * exp(restart / mtbf) * expm1((interval + cost) / mtbf) * work / interval
    except OverflowError:
        return inf


def _check(cost: float, mtbf: float) -> None:
    if not 0 <= cost < inf:
        raise InputError(f"the cost of a checkpoint must be finite and 0 or more, not {cost}")
    if not 0 < mtbf < inf:
        raise InputError(f"the mean time between faults must be above 0 and finite, not {mtbf}")
