"""Where the time of one rank goes: every instant of an iteration belongs to exactly one part.

What counts is why the rank does not compute: while it computes, communication costs nothing. Where
several reasons hold at once, the first in this order has the instant: it computes; it copies; data
that it needs is on the way; the others have not come to a collective; a message that it needs has
not been sent, or the others are not done; what it sends is on the way; its host issues ops.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.jobs import KINDS
from paracosm.prediction.jobs.departures import departures
from paracosm.simulation import JobSchedule

__all__ = ["PARTS", "rank_breakdown"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PARTS = (
    "compute",
    "copies",
    "exposed_communication",
    "waiting",
    "bubble",
    "launch",
    "idle",
)
"""Names of the parts. Waiting for a message, or for the end, is the bubble of a pipeline, and
elsewhere waiting for others; idle is what has none of the reasons."""

PICOSECONDS = 1e12  # a second
COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in ("collective", "send", "receive"))
NETWORK = ("communication", "tensor", "send", "receive")


def rank_breakdown(schedule: JobSchedule, rank: int, *, pipelined: bool) -> dict[str, float]:
    """Return the seconds of each of `PARTS`; in whole picoseconds they add up to the makespan.

    Args:
        schedule: of the job.
        rank: whose time.
        pipelined: whether ranks are stages of a pipeline.
    """
    found = dict.fromkeys(PARTS, 0)
    covered, reached = _union(_NONE, _NONE), 0
    for part, begin, end in _reasons(schedule, rank, pipelined):
        covered = _union(np.concatenate((covered[0], begin)), np.concatenate((covered[1], end)))
        length = int((covered[1] - covered[0]).sum())
        found[part] += length - reached
        reached = length
    found["idle"] = int(_picoseconds(schedule.makespan)) - reached
    return {part: time / PICOSECONDS for part, time in found.items()}


_NONE = np.zeros(0, dtype=np.int64)


def _reasons(schedule: JobSchedule, rank: int, pipelined: bool) -> list[tuple[str, Ints, Ints]]:
    """Return what keeps a rank: part, begins and ends in picoseconds; the first reason first."""
    job, tasks = schedule.job, schedule.tasks_of(rank)
    program = job.programs[job.program[rank]]
    arrive, begin, end = (
        _picoseconds(times[tasks]) for times in (schedule.arrive, schedule.begin, schedule.end)
    )
    lanes = np.array([*job.lanes, ""])[program.lane]
    own = program.kind == KINDS.index("task")
    network, host, copies = own & np.isin(lanes, NETWORK), lanes == "host", lanes == "memory"
    compute = own & (program.lane >= 0) & ~(network | host | copies)
    meets, sends = network | (program.kind == COLLECTIVE), program.kind == SEND
    receives = program.kind == RECEIVE
    sent = np.clip(_picoseconds(departures(schedule, rank)[receives]), arrive[receives], None)
    sent = np.minimum(sent, end[receives])
    done = np.array([end.max(initial=0)]), np.array([_picoseconds(schedule.makespan)])
    for_others = "bubble" if pipelined else "waiting"
    return [
        ("compute", begin[compute], end[compute]),
        ("copies", begin[own & copies], end[own & copies]),
        ("exposed_communication", begin[meets], end[meets]),
        ("exposed_communication", sent, end[receives]),
        ("waiting", arrive[meets], begin[meets]),
        (for_others, arrive[receives], sent),
        ("exposed_communication", begin[sends], end[sends]),
        ("launch", begin[own & host], end[own & host]),
        (for_others, *done),
    ]


def _union(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the begins and ends of the disjoint spans that cover the same instants."""
    some = end > begin
    begin, end = begin[some], end[some]
    order = np.argsort(begin, kind="stable")
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    if not len(begin):
        return begin, reached
    new = np.concatenate(([True], begin[1:] > reached[:-1]))
    return begin[new], reached[np.concatenate((new[1:], [True]))]


def _picoseconds(seconds: Floats | float) -> Ints:
    return np.rint(np.asarray(seconds) * PICOSECONDS).astype(np.int64)
