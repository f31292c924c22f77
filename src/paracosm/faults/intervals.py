"""How long to wait between checkpoints: two published estimates of the best interval.

Both were derived for failures that are noticed at once and lose what was done since the last
checkpoint. An asynchronous iteration that reads at the start of an update wants 1 to 2.5 times as
long, since results in flight survive the rollback.
"""

from __future__ import annotations

from math import inf, sqrt

from paracosm.errors import InputError

__all__ = ["daly_interval", "young_interval"]


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


def _check(cost: float, mtbf: float) -> None:
    if not 0 <= cost < inf:
        raise InputError(f"the cost of a checkpoint must be finite and 0 or more, not {cost}")
    if not 0 < mtbf < inf:
        raise InputError(f"the mean time between faults must be above 0 and finite, not {mtbf}")
