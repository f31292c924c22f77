"""What a recording shows of the operating system: threads that lost their core, and for how long.

Nothing tells a thread that it lost its core; it sees an iteration that took long. One that took
`LOST` longer than the median of its thread is counted as interrupted. Shorter interruptions
(interrupts, other programs that ran briefly) remain part of the durations, and a thread whose own
iterations vary by more than that is misjudged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.threads.recording import Recording

__all__ = ["LOST", "Interruptions", "find_interruptions", "foreign_load"]

LOST = 0.5e-3  # seconds; schedulers take a core away for longer, unless somebody hurries
_KEPT = 500  # slices, evenly over their ranks


@dataclass(frozen=True)
class Interruptions:
    """How threads shared the cores.

    Args:
        slices: how long threads ran from one interruption to the next, seconds, ascending.
        share: of the run, the part that the threads spent on cores, averaged over threads.
        load: foreign threads that would explain that share; see `foreign_load`.
    """

    slices: tuple[float, ...]
    share: float
    load: float


def find_interruptions(recordings: Sequence[Recording], cores: int) -> Interruptions:
    """Return what recordings of equal numbers of threads show of interruptions on `cores`."""
    slices, shares = [], []
    threads = 1
    for recording in recordings:
        stamps = [(rows[:, 0], rows[:, -1]) for rows in (*recording.workers, recording.checks)]
        stamps = [(start, end) for start, end in stamps if len(start)]
        threads = len(stamps)
        for start, end in stamps:
            stretches, share = _stretches(start, end)
            slices.append(stretches)
            shares.append(share)
    share = float(np.mean(shares)) if shares else 1.0
    found = np.sort(np.concatenate(slices)) if slices else np.empty(0)
    if len(found) > _KEPT:
        found = found[np.linspace(0, len(found) - 1, _KEPT).round().astype(int)]
    return Interruptions(tuple(found.tolist()), share, foreign_load(share, threads, cores))


def foreign_load(share: float, threads: int, cores: int) -> float:
    """Return how many foreign threads leave each of `threads` the `share` of a core.

    Threads that share `cores` fairly get min(1, cores / (threads + load)) of one each.
    """
    if share >= 1:
        return 0.0
    return max(0.0, cores / share - threads)


def _stretches(
    start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float]:
    """Return the lengths of the uninterrupted stretches between interruptions, and their share."""
    seconds = 1e-9 * (end - start)
    usual = float(np.median(seconds))
    lost = np.flatnonzero(seconds > usual + LOST)
    if not lost.size:
        return np.empty(0), 1.0
    away = float(np.sum(seconds[lost] - usual))
    whole = 1e-9 * float(end[-1] - start[0])
    # Before the first and after the last interruption a slice is not seen whole.
    between = 1e-9 * (start[lost[1:]] - end[lost[:-1]]) + usual
    return np.asarray(between, np.float64), 1.0 - away / whole
