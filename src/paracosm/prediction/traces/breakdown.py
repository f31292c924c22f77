"""Where a rank's time goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.prediction.traces.traced import WORK, TracedRank
from paracosm.timeline import covered

__all__ = ["Breakdown", "breakdown_of"]

Floats = npt.NDArray[np.float64]

_COMPUTE = [WORK.index("compute"), WORK.index("copy")]
_HOST = [WORK.index("host"), WORK.index("data loading")]
_COMMUNICATION, _LOADING = WORK.index("communication"), WORK.index("data loading")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of an iteration of one rank; the first four make up the whole.

    Attributes:
        compute: some stream of the device computes or copies (on a rank without a device: some
            thread works).
        exposed_communication: none does, and data is on its way.
        waiting: the device waits in a collective for other ranks.
        host: none of these: the device waits for the host.
        data_loading: the training loop waits for data; part of the others.
    """

    compute: float
    exposed_communication: float
    waiting: float
    host: float
    data_loading: float

    @property
    def total(self) -> float:
        """Seconds of the iteration."""
        return self.compute + self.exposed_communication + self.waiting + self.host


def breakdown_of(
    rank: TracedRank, arrive: Floats, begin: Floats, end: Floats, iterations: int
) -> Breakdown:
    """Return where the time of a rank goes, for one iteration of those that ran.

    Args:
        rank: what its rows are.
        arrive, begin, end: seconds of each row.
        iterations: how many the times are of.
    """
    first, last = _bounds(rank, begin, end)
    device = np.isin(rank.work, [*_COMPUTE, _COMMUNICATION]).any()
    busy = np.isin(rank.work, _COMPUTE if device else _HOST)
    met = rank.work == _COMMUNICATION

    def length(*parts: tuple[Floats, Floats]) -> float:
        starts = np.clip(np.concatenate([part[0] for part in parts]), first, last)
        ends = np.clip(np.concatenate([part[1] for part in parts]), first, last)
        return covered(starts, ends)

    working, moving, waiting = (
        (begin[busy], end[busy]),
        (begin[met], end[met]),
        (arrive[met], begin[met]),
    )
    compute = length(working)
    with_moving = length(working, moving)
    with_waiting = length(working, moving, waiting)
    loading = rank.work == _LOADING
    return Breakdown(
        compute=compute / iterations,
        exposed_communication=(with_moving - compute) / iterations,
        waiting=(with_waiting - with_moving) / iterations,
        host=(last - first - with_waiting) / iterations,
        data_loading=length((begin[loading], end[loading])) / iterations,
    )


def _bounds(rank: TracedRank, begin: Floats, end: Floats) -> tuple[float, float]:
    """Return when the steps of a rank begin and end; without steps, when all of it does."""
    if len(rank.marks):
        return float(begin[rank.marks[0]]), float(end[rank.marks[-1]])
    return 0.0, float(end.max(initial=0.0))
