"""What the ranks of a replayed job spend an iteration on, and their timeline."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.jobs.job import KINDS
from paracosm.jobs.strategies.work import UPDATE, WITHIN
from paracosm.network.clock import PICOSECONDS
from paracosm.simulation.memory import memory_over_time
from paracosm.simulation.static import JobSchedule
from paracosm.timeline.analysis import breakdown
from paracosm.timeline.timeline import Labels, Timeline

PARTS = ("compute", "copies", "exposed_communication", "waiting", "bubble", "launch", "idle")
"""Names of the parts. Waiting for a message, or for the end, is the bubble of a pipeline, and
elsewhere waiting for others; idle is what has none of the reasons."""

TASK, COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in KINDS)
COPIES = ("memory", "offload", "reload")
NETWORK = ("communication", *WITHIN, "send", "receive")


def rank_breakdown(
    schedule: JobSchedule,
    rank: int,
    *,
    pipelined: bool,
    between: tuple[float, float] | None = None,
) -> dict[str, float]:
    """Return the seconds of each of `PARTS`; in whole picoseconds they add up to the makespan.

    That is of the whole schedule, or of what lies `between` two instants.

    What counts is why the rank does not compute: while it computes, communication costs nothing.
    Where several reasons hold at once, the first in this order has the instant: it computes; it
    copies; data that it needs is on the way; the others have not come to a collective; a message
    that it needs has not been sent, or the others are not done; what it sends is on the way; its
    host issues ops. In a pipeline ranks are its stages.
    """
    return parts_of(causes_of(schedule, rank, pipelined=pipelined, between=between))


CAUSES = {
    "communication": "gradients and parameters over the network",
    "tensor": "tensor-parallel collectives",
    "context": "context-parallel messages",
    "expert": "expert-parallel exchanges",
    "expert_tensor": "exchanges of those that share an expert",
    "send": "messages between stages",
    "receive": "messages between stages",
}
"""What a device waits for, by the lane of what is under way."""

ON_HOST = "updates on the host"
"""A cause of its own, which counts as copies."""


def parts_of(causes: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each of `PARTS` from picoseconds by cause."""
    parts = dict.fromkeys(PARTS, 0.0)
    for cause, time in causes.items():
        cause = "copies" if cause == ON_HOST else cause
        parts[cause if cause in PARTS else "exposed_communication"] += time
    return {part: time / PICOSECONDS for part, time in parts.items()}


def causes_of(
    schedule: JobSchedule,
    rank: int,
    *,
    pipelined: bool,
    between: tuple[float, float] | None = None,
) -> dict[str, float]:
    """Return a rank's picoseconds by part, with those of exposed communication by `CAUSES`."""
    job, tasks = schedule.job, schedule.tasks_of(rank)
    program = job.programs[job.program[rank]]
    arrive, begin, end = (
        _picoseconds(times[tasks]) for times in (schedule.arrive, schedule.begin, schedule.end)
    )
    first, last = (0.0, schedule.makespan) if between is None else between
    since, until = int(_picoseconds(first)), int(_picoseconds(last))
    lanes = np.array([*job.lanes, ""])  # the last is that of tasks without one
    is_task = program.kind == TASK
    network, copies = (np.isin(lanes, names)[program.lane] for names in (NETWORK, COPIES))
    network, host = is_task & network, (lanes == "host")[program.lane]
    updates = is_task & (lanes == UPDATE)[program.lane]
    compute = is_task & (program.lane >= 0) & ~(network | host | copies | updates)
    meets, sends = network | (program.kind == COLLECTIVE), program.kind == SEND
    receives = program.kind == RECEIVE
    sent = np.clip(_picoseconds(_departures(schedule, rank)[receives]), arrive[receives], None)
    sent = np.minimum(sent, end[receives])
    for_others = "bubble" if pipelined else "waiting"
    return breakdown(
        [
            ("compute", begin[compute], end[compute]),
            (ON_HOST, begin[updates], end[updates]),
            ("copies", begin[is_task & copies], end[is_task & copies]),
            *(
                (CAUSES.get(lanes[lane], "exposed_communication"), begin[there], end[there])
                for lane in dict.fromkeys(program.lane[meets].tolist())
                for there in [meets & (program.lane == lane)]
            ),
            (CAUSES["receive"], sent, end[receives]),
            ("waiting", arrive[meets], begin[meets]),
            (for_others, arrive[receives], sent),
            (CAUSES["send"], begin[sends], end[sends]),
            ("launch", begin[is_task & host], end[is_task & host]),
            (for_others, np.array([end.max(initial=0)]), np.array([until])),
        ],
        *(since, until),
        rest="idle",
    )


def _picoseconds(seconds: Floats | float) -> Ints:
    return np.rint(np.asarray(seconds) * PICOSECONDS).astype(np.int64)


def job_timeline(
    schedule: JobSchedule, ranks: Sequence[int], between: tuple[float, float] | None = None
) -> Timeline:
    """Return the spans of these ranks by lane, and the memory of each as a counter.

    With `between` only what begins between two instants is shown, from the first of them on.

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
            times[tasks] for times in (schedule.arrive, schedule.begin, schedule.end)
        )
        sent = np.clip(np.nan_to_num(_departures(schedule, rank)), arrive, end)
        begin = np.where(program.kind == RECEIVE, sent, begin)
        first, last = (0.0, np.inf) if between is None else between
        shown = (begin >= first) & (begin < last)
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
            np.maximum(np.column_stack([arrive, begin]) - first, 0.0),
            np.maximum(np.column_stack([begin, end]) - first, 0.0),
            np.column_stack([np.full_like(flows[rank], -1), flows[rank]]),
            where=np.column_stack(
                [
                    shown & (begin > arrive) & (program.lane >= 0),
                    shown & (end > begin) & (lane >= 0),
                ]
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
    departures = np.full(len(job.programs[job.program[rank]]), np.nan)
    for receives, sender, sends in _messages(schedule, rank):
        departures[receives] = schedule.begin[schedule.tasks_of(sender)][sends]
    return departures


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
