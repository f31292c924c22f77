"""When the messages that a rank receives were sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.jobs import KINDS
from paracosm.simulation import JobSchedule

__all__ = ["departures", "senders"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SEND, RECEIVE = KINDS.index("send"), KINDS.index("receive")


def departures(schedule: JobSchedule, rank: int) -> Floats:
    """Return, for each of the rank's n tasks that receives, when its send began; NaN elsewhere."""
    job = schedule.job
    found = np.full(len(job.programs[job.program[rank]]), np.nan)
    for rows, sender, sends in senders(schedule, rank):
        found[rows] = schedule.begin[schedule.tasks_of(sender)][sends]
    return found


def senders(schedule: JobSchedule, rank: int) -> list[tuple[Ints, int, Ints]]:
    """Return rows of receives, the rank that they receive from, and the rows of its sends.

    One entry for each role in which the rank receives; the k-th receive gets the k-th send.
    """
    job = schedule.job
    program = job.programs[job.program[rank]]
    receives = np.flatnonzero(program.kind == RECEIVE)
    found = []
    for role in np.unique(program.role[receives]).tolist():
        number = int(job.communicator[rank, role])
        sender = int(job.communicators.members[job.communicators.offsets[number]])
        other = job.programs[job.program[sender]]
        roles = np.flatnonzero(job.communicator[sender] == number)
        sends = np.flatnonzero((other.kind == SEND) & np.isin(other.role, roles))
        found.append((receives[program.role[receives] == role], sender, sends))
    return found
