"""When every task of a job ran: what the replay of a job returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs import Job

__all__ = ["JobSchedule"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JobSchedule:
    """Instants of the tasks of a job, in seconds from the beginning of the iteration.

    Ranks that cannot but run alike form a class, and only one of each is written down: the
    schedule of rank r is that of `representative[class_of[r]]`. Replayed in full, every rank is a
    class of its own. The tasks of class c stand in `slice(first[c], first[c + 1])`, in the order of
    the rows of its program.

    Attributes:
        job: whose schedule.
        class_of: R indices of classes.
        representative: the rank that stands for each of C classes.
        first: C + 1 offsets.
        arrive: when each task takes its lane; a collective then waits for the other ranks.
        begin: when it goes on; differs from `arrive` for collectives only.
        end: when it has ended and its lane is free.
    """

    job: Job
    class_of: Codes
    representative: Codes
    first: Ints
    arrive: Floats
    begin: Floats
    end: Floats

    @property
    def makespan(self) -> float:
        """The instant at which the last task has ended; 0 of an empty job."""
        return float(self.end.max(initial=0.0))

    def tasks_of(self, rank: int) -> slice:
        """Return where the tasks of a rank stand, or those of the rank that stands for it."""
        number = int(self.class_of[rank])
        return slice(int(self.first[number]), int(self.first[number + 1]))
