"""Steps/s of simulated workers in a stretch of virtual time, as one would measure them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["rate_after_start", "rates_in_period", "rates_of_windows", "steady_period"]

Floats = npt.NDArray[np.float64]

LEADING = 50
"""Steps of each worker that belong to the start (Li et al. 2020, section 4.1)."""

DROPPED = 2
"""First steps of each worker that a measurement after a start leaves out."""


def steady_period(step_end: Floats) -> tuple[float, float]:
    """Return begin and end of the time in which all workers are at work, long after their start.

    It begins when each worker has ended `LEADING` steps, at the latest in the middle of the time
    until the first worker has ended all of its steps, where it ends.

    Args:
        step_end: seconds, (workers, steps).
    """
    until = float(np.nanmax(step_end, axis=1).min())
    leading = min(LEADING, step_end.shape[1] // 2)
    ended = step_end[:, leading - 1]
    # Backup workers may never get that far: the others end without them.
    return min(float(np.where(np.isnan(ended), np.inf, ended).max()), until / 2), until


def rates_in_period(start: Floats, ended: Floats, begin: float, until: float) -> Floats:
    """Return the steps/s of each worker in a stretch of a steady state, (workers,).

    A step that is under way at the stretch's begin or end counts by the share of it that is within,
    so that rates are right in the mean, however unequally steps last. (Steps that end within over
    the time that they took are not: it is the long steps that a stretch begins and ends in.)

    Args:
        start: seconds at which each worker began, (workers,).
        ended: seconds at which steps ended that count, (workers, steps); NaN for others.
        begin, until: seconds.
    """
    found = np.zeros(len(ended))
    for worker, row in enumerate(ended):
        ends = np.concatenate([start[worker : worker + 1], row[~np.isnan(row)]])
        first, last = np.interp([begin, until], ends, np.arange(len(ends)))
        found[worker] = (last - first) / (until - begin)
    return found


def rates_of_windows(ended: Floats, begin: float, until: float, windows: int) -> Floats:
    """Return the steps/s of all workers together in each of equal windows, (windows,).

    A worker's rate is its steps but one over the time from the first of their ends to the last;
    where it ended one or none in a window, their number over the window's length.

    Args:
        ended: seconds at which steps ended that count, (workers, steps); NaN for others.
        begin, until: seconds.
        windows: how many.
    """
    edges = np.linspace(begin, until, windows + 1)
    found = np.zeros(windows)
    for row in ended:
        ends = row[~np.isnan(row)]
        places = np.searchsorted(ends, edges, side="right")
        count = np.diff(places)
        plain = count / np.diff(edges)
        several = count > 1
        first, last = ends[places[:-1][several]], ends[places[1:][several] - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            plain[several] = np.where(
                last > first, (count[several] - 1) / (last - first), plain[several]
            )
        found += plain
    return found


def rate_after_start(ended: Floats, until: float) -> float:
    """Return the steps/s of all workers together from their start to a time.

    A worker's rate is as in `rates_of_windows`, without its first `DROPPED` steps.

    Args:
        ended: as there.
        until: seconds.
    """
    total = 0.0
    for row in ended:
        ends = row[row <= until][DROPPED:]
        if len(ends) > 1 and ends[-1] > ends[0]:
            total += (len(ends) - 1) / float(ends[-1] - ends[0])
    return total
