"""Where a rank's time goes, and what limits a traced job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.prediction.traces.traced import WORK, TracedRank
from paracosm.timeline import breakdown, largest_share

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
    first, last = 0.0, float(end.max(initial=0.0))
    if len(rank.marks):
        first, last = float(begin[rank.marks[0]]), float(end[rank.marks[-1]])
    device = np.isin(rank.work, [*_COMPUTE, _COMMUNICATION]).any()
    busy = np.isin(rank.work, _COMPUTE if device else _HOST)
    met, loading = rank.work == _COMMUNICATION, rank.work == _LOADING
    found = breakdown(
        [
            ("compute", begin[busy], end[busy]),
            ("exposed_communication", begin[met], end[met]),
            ("waiting", arrive[met], begin[met]),
        ],
        *(first, last),
        rest="host",
    )
    loaded = breakdown([("data_loading", begin[loading], end[loading])], first, last, rest="other")
    found["data_loading"] = loaded["data_loading"]
    return Breakdown(**{part: time / iterations for part, time in found.items()})


def bottleneck_of(breakdowns: Sequence[Breakdown], straggler: int | None) -> str:
    """Return what takes the largest part of the ranks' time, and how large it is.

    Args:
        breakdowns: one for each rank.
        straggler: the rank that the others wait for most often; None where no collectives meet.
    """
    total = sum(each.total for each in breakdowns)
    if not total:
        return "Nothing takes time."
    time = {
        name: sum(getattr(each, name) for each in breakdowns)
        for name in ("compute", "exposed_communication", "waiting", "host")
    }
    name, share = largest_share(time, total)
    loading = sum(each.data_loading for each in breakdowns) / total
    many = "the ranks'" if len(breakdowns) > 1 else "the"
    if name == "compute":
        return f"Computation: it takes {share:.0%} of {many} time."
    if name == "exposed_communication":
        return f"Communication: {share:.0%} of {many} time is exposed."
    if name == "waiting" and straggler is not None:
        return (
            f"Waiting for other ranks: {share:.0%} of {many} time, for rank {straggler} most often."
        )
    if name == "host" and loading > share / 2:
        return f"Data loading: the training loop waits {loading:.0%} of {many} time for data."
    return f"The host: for {share:.0%} of {many} time the device has nothing to do."
