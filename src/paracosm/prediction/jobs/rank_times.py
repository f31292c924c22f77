"""Where the time of one rank of a job goes, and what it does when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs import KINDS
from paracosm.simulation import JobSchedule
from paracosm.simulation.job_schedule import memory_over_time
from paracosm.timeline import Labels, Timeline, breakdown

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
TASK, COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in KINDS)
NETWORK = ("communication", "tensor", "send", "receive")


def rank_breakdown(schedule: JobSchedule, rank: int, *, pipelined: bool) -> dict[str, float]:
    """Return the seconds of each of `PARTS`; in whole picoseconds they add up to the makespan.

    What counts is why the rank does not compute: while it computes, communication costs nothing.
    Where several reasons hold at once, the first in this order has the instant: it computes; it
    copies; data that it needs is on the way; the others have not come to a collective; a message
    that it needs has not been sent, or the others are not done; what it sends is on the way; its
    host issues ops. In a pipeline ranks are its stages.
    """
    job, tasks = schedule.job, schedule.tasks_of(rank)
    program = job.programs[job.program[rank]]
    arrive, begin, end = (
        _picoseconds(times[tasks]) for times in (schedule.arrive, schedule.begin, schedule.end)
    )
    makespan = int(_picoseconds(schedule.makespan))
    lanes = np.array([*job.lanes, ""])[program.lane]
    own = program.kind == TASK
    network, host, copies = own & np.isin(lanes, NETWORK), lanes == "host", lanes == "memory"
    compute = own & (program.lane >= 0) & ~(network | host | copies)
    meets, sends = network | (program.kind == COLLECTIVE), program.kind == SEND
    receives = program.kind == RECEIVE
    sent = np.clip(_picoseconds(_departures(schedule, rank)[receives]), arrive[receives], None)
    sent = np.minimum(sent, end[receives])
    for_others = "bubble" if pipelined else "waiting"
    found = breakdown(
        [
            ("compute", begin[compute], end[compute]),
            ("copies", begin[own & copies], end[own & copies]),
            ("exposed_communication", begin[meets], end[meets]),
            ("exposed_communication", sent, end[receives]),
            ("waiting", arrive[meets], begin[meets]),
            (for_others, arrive[receives], sent),
            ("exposed_communication", begin[sends], end[sends]),
            ("launch", begin[own & host], end[own & host]),
            (for_others, np.array([end.max(initial=0)]), np.array([makespan])),
        ],
        *(0, makespan),
        rest="idle",
    )
    return {part: found.get(part, 0) / PICOSECONDS for part in PARTS}


def _picoseconds(seconds: Floats | float) -> Ints:
    return np.rint(np.asarray(seconds) * PICOSECONDS).astype(np.int64)


def job_timeline(schedule: JobSchedule, ranks: Sequence[int]) -> Timeline:
    """Return the spans of these ranks by lane, and the memory of each as a counter.

    A collective is two spans: waiting for the others, then the operation; so is a receive: waiting
    for the message to be sent, then the message. Messages are on "send" and "receive", whatever
    their lanes; those between two of the ranks are flows. Tasks that take no time are left out, and
    so are those without a lane that are no messages.
    """
    job, timeline = schedule.job, Timeline()
    lanes = [*job.lanes, "send", "receive"]
    names = [*job.names, *(f"wait: {name}" for name in job.names)]
    flows = _flows(schedule, ranks)
    for rank in ranks:
        tasks, program = schedule.tasks_of(rank), job.programs[job.program[rank]]
        arrive, begin, end = (
            each[tasks] for each in (schedule.arrive, schedule.begin, schedule.end)
        )
        sent = np.clip(np.nan_to_num(_departures(schedule, rank)), arrive, end)
        begin = np.where(program.kind == RECEIVE, sent, begin)
        lane = np.select(
            [program.kind == SEND, program.kind == RECEIVE],
            [len(job.lanes), len(job.lanes) + 1],
            program.lane,
        )
        # Of each task the waiting, then the work.
        timeline.extend(
            job.labels[rank],
            Labels(lane[:, None], lanes),
            Labels(np.add.outer(program.name, [len(job.names), 0]), names),
            np.column_stack([arrive, begin]),
            np.column_stack([begin, end]),
            np.column_stack([np.full_like(flows[rank], -1), flows[rank]]),
            where=np.column_stack(
                [(begin > arrive) & (program.lane >= 0), (end > begin) & (lane >= 0)]
            ),
        )
        times, held = memory_over_time(schedule, rank)
        if held.any():
            timeline.extend_counters(job.labels[rank], "memory", times, held)
    return timeline


def _flows(schedule: JobSchedule, ranks: Sequence[int]) -> dict[int, Ints]:
    """Return for each rank the numbers of the messages that its tasks send or receive, or -1."""
    flows = {rank: np.full(len(schedule.arrive[schedule.tasks_of(rank)]), -1) for rank in ranks}
    count = 0
    for rank in ranks:
        for receives, sender, sends in _messages(schedule, rank):
            if sender in flows:
                known = len(receives)
                flows[rank][receives] = flows[sender][sends] = np.arange(count, count + known)
                count += known
    return flows


def _departures(schedule: JobSchedule, rank: int) -> Floats:
    """Return, for each task of a rank that receives, when its send began; NaN for the others."""
    job = schedule.job
    found = np.full(len(job.programs[job.program[rank]]), np.nan)
    for receives, sender, sends in _messages(schedule, rank):
        found[receives] = schedule.begin[schedule.tasks_of(sender)][sends]
    return found


def _messages(schedule: JobSchedule, rank: int) -> Iterator[tuple[Ints, int, Ints]]:
    """For each role: rows of receives, their sender, rows of its sends; the k-th gets the k-th."""
    job = schedule.job
    program = job.programs[job.program[rank]]
    receives = np.flatnonzero(program.kind == RECEIVE)
    for role in np.unique(program.role[receives]).tolist():
        number = int(job.communicator[rank, role])
        sender = int(job.communicators.members[job.communicators.offsets[number]])
        other = job.programs[job.program[sender]]
        roles = np.flatnonzero(job.communicator[sender] == number)
        sends = np.flatnonzero((other.kind == SEND) & np.isin(other.role, roles))
        yield receives[program.role[receives] == role], sender, sends


MOST = 16
"""Ranks that are shown where nobody chooses: a trace viewer holds some million spans."""


def parse_ranks(text: str) -> tuple[range, ...] | None:
    """Read "0,8..15" as ranges; None for "all"."""
    if text.strip() == "all":
        return None
    ranks: list[range] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\s*\.\.\s*(\d+))?", piece.strip())
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise InputError(f'cannot read "{piece.strip()}" as ranks: write 0,8..15, or all')
        ranks.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(ranks)


def check_ranks(text: str, count: int) -> None:
    """Raise InputError if the text names a rank that a job of `count` has not."""
    for ranks in parse_ranks(text) or ():
        if ranks.stop > count:
            raise InputError(f"timeline_ranks: no rank {ranks.stop - 1}: they are 0 to {count - 1}")


def shown_ranks(schedule: JobSchedule, wanted: str | None) -> tuple[int, ...]:
    """Return those that are wanted, or one of each class, at most `MOST`."""
    count = schedule.job.ranks
    if wanted is None:
        return tuple(_spread(sorted(schedule.representative.tolist())))
    check_ranks(wanted, count)
    ranks = parse_ranks(wanted)
    if ranks is None:
        return tuple(range(count))
    return tuple(dict.fromkeys(rank for each in ranks for rank in each))


def _spread(ranks: Sequence[int]) -> list[int]:
    if len(ranks) <= MOST:
        return list(ranks)
    step = (len(ranks) - 1) / (MOST - 1)
    return [ranks[round(place * step)] for place in range(MOST)]
