"""The collectives at which the ranks of a traced job met, and what each would take by the others.

A collective begins when the last rank has come, and takes `latency + size / bandwidth` (Hockney,
Parallel Computing 20, 1994). The two are fitted to the other collectives of its kind, so that what
is predicted is never part of what it is predicted from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs.job import KINDS
from paracosm.replays.traced import TracedJob

__all__ = ["Meeting", "meetings_of", "transfer_by_others"]

Floats = npt.NDArray[np.float64]

_COLLECTIVE = KINDS.index("collective")


@dataclass(frozen=True, eq=False)
class Meeting:
    """A collective of g ranks.

    Attributes:
        kind: "all_reduce", ...
        size: bytes that go in, on the rank with most; 0 where no trace says it.
        ranks: g numbers.
        arrive, end: g seconds, as traced.
    """

    kind: str
    size: int
    ranks: tuple[int, ...]
    arrive: Floats
    end: Floats

    @property
    def begin(self) -> float:
        """When the last rank came."""
        return float(self.arrive.max())

    @property
    def last(self) -> int:
        """The rank that came last."""
        return self.ranks[int(self.arrive.argmax())]

    @property
    def transfer(self) -> float:
        """Seconds that it took: the shortest of its ranks."""
        return float((self.end - self.arrive).min())

    @property
    def waited(self) -> Floats:
        """Seconds that each rank waited: what it took it beyond the shortest."""
        return self.end - self.arrive - self.transfer


def meetings_of(traced: TracedJob) -> list[Meeting]:
    """Return the collectives of a job, in the order in which they began."""
    job = traced.job
    found = []
    for number in range(len(job.communicators)):
        ranks = job.communicators.ranks(number)
        rows = []
        for rank in ranks:
            program = job.programs[rank]
            met = (program.kind == _COLLECTIVE) & (job.communicator[rank][program.role] == number)
            rows.append(np.flatnonzero(met))
        for at in zip(*(row.tolist() for row in rows), strict=True):
            programs = [job.programs[rank] for rank in ranks]
            sizes = [int(program.size[row]) for program, row in zip(programs, at, strict=True)]
            places = list(zip(ranks, at, strict=True))
            found.append(
                Meeting(
                    kind=job.names[int(programs[0].name[at[0]])],
                    size=max(sizes),
                    ranks=tuple(traced.ranks[rank].rank for rank in ranks),
                    arrive=np.array([traced.ranks[rank].arrive[row] for rank, row in places]),
                    end=np.array([traced.ranks[rank].end[row] for rank, row in places]),
                )
            )
    return sorted(found, key=lambda meeting: meeting.begin)


def transfer_by_others(meetings: Sequence[Meeting], number: int) -> float | None:
    """Return the seconds that a collective takes by the others of its kind and number of ranks.

    Of those with one size there is no bandwidth: then it takes as long as they did in the mean.
    None where there are no others.
    """
    asked = meetings[number]
    others = [
        meeting
        for at, meeting in enumerate(meetings)
        if at != number and (meeting.kind, len(meeting.ranks)) == (asked.kind, len(asked.ranks))
    ]
    if not others:
        return None
    sizes = np.array([other.size for other in others], dtype=np.float64)
    times = np.array([other.transfer for other in others])
    spread = sizes - sizes.mean()
    slope = float(spread @ times / (spread @ spread)) if spread.any() else 0.0
    slope = max(slope, 0.0)
    latency = max(float(times.mean() - slope * sizes.mean()), 0.0)
    return latency + slope * asked.size
