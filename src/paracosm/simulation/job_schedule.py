"""When every task of a job ran: what the replay of a job returns."""

from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.jobs.job import Job


@dataclass(frozen=True, eq=False)
class JobSchedule:
    """Instants of the tasks of a job, in seconds from the beginning of the iteration.

    Ranks that cannot but run alike form a class, and only one of each is written down: the
    schedule of rank r is that of `representative[class_of[r]]`. Replayed in full, every rank is a
    class of its own. The tasks of class c stand in `slice(first[c], first[c + 1])`, in the order of
    the rows of its program.
    """

    job: Job
    class_of: Codes  # R indices of classes
    representative: Codes  # the rank that stands for each of C classes
    first: Ints  # C + 1 offsets
    arrive: Floats  # when each task takes its lane; a collective then waits for the other ranks
    begin: Floats  # when it goes on; differs from `arrive` for collectives only
    end: Floats  # when it has ended and its lane is free

    @property
    def makespan(self) -> float:
        """The instant at which the last task has ended; 0 of an empty job."""
        return float(self.end.max(initial=0.0))

    def tasks_of(self, rank: int) -> slice:
        """Return where the tasks of a rank stand, or those of the rank that stands for it."""
        number = int(self.class_of[rank])
        return slice(int(self.first[number]), int(self.first[number + 1]))


def memory_over_time(schedule: JobSchedule, rank: int) -> tuple[Floats, Ints]:
    """Return k instants in seconds, ascending, and the bytes that a rank holds from each one on.

    A task's allocations count from the instant at which it takes its lane, and what it releases is
    free when it ends; at one instant tasks do so in the order of their rows.
    """
    program = schedule.job.programs[schedule.job.program[rank]]
    tasks = schedule.tasks_of(rank)
    takes, gives = np.flatnonzero(program.allocated), np.flatnonzero(program.released)
    instants = np.concatenate((schedule.end[tasks][gives], schedule.arrive[tasks][takes]))
    change = np.concatenate((-program.released[gives], program.allocated[takes]))
    rows = np.concatenate((2 * gives + 1, 2 * takes))  # a task takes before it gives
    order = np.lexsort((rows, instants))
    held = program.resident + np.cumsum(change[order])
    return (
        np.concatenate(([0.0], instants[order])),
        np.concatenate(([program.resident], held)).astype(np.int64),
    )


def peak_memory_of_ranks(schedule: JobSchedule) -> Ints:
    """Return the most bytes that each of R ranks holds at a time."""
    peaks = [int(memory_over_time(schedule, rank)[1].max()) for rank in schedule.representative]
    return np.array(peaks, dtype=np.int64)[schedule.class_of]
