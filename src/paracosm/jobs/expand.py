"""A job expanded in full: one row for every task of every rank."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.errors import InputError
from paracosm.jobs.job import KINDS, POLICIES, Job, Program, TaskGraph
from paracosm.network import Stations

COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in ("collective", "send", "receive"))


def expand(job: Job, duration: Ints | None = None) -> TaskGraph:
    """Return the task graph of a job.

    It is ordered by rank, then by the rows of the rank's program: row i of rank r is task
    `first_rows(job)[r] + i`. Times are rounded to picoseconds. Every lane of every rank that has a
    task is a resource. The k-th collectives of ranks on one communicator are a meeting, and the
    k-th receive on a communicator awaits the k-th send. If communicators have a network, the
    connection defines what a message asks of its stations, whatever its duration in the program,
    and it has arrived when its propagation is over; those of one connection travel in the order of
    sending. Calls without a counterpart (`check_job` refuses such jobs) are kept without one.

    Args:
        job: whose tasks.
        duration: picoseconds of every task, shape (tasks of all ranks,), instead of those of the
            programs; speeds of ranks are not applied to them.

    Raises:
        InputError: a duration that cannot be, with its task (see `picoseconds`); a number of
            durations that is not that of the tasks.
    """
    programs = [job.programs[number] for number in job.program]
    lengths = np.array([len(program) for program in programs], dtype=np.int64)
    rank = np.repeat(np.arange(job.ranks), lengths)
    kind = _joined(programs, lambda program: program.kind, np.int32)
    if duration is None:
        duration = _durations(job)
    elif duration.shape != (len(rank),):
        raise InputError(f"{duration.size} durations for the {len(rank)} tasks of all ranks")
    resource, policy = _resources(job, programs, rank)
    role = _joined(programs, lambda program: program.role, np.int32)
    communicator = np.full(len(rank), -1, dtype=np.int64)
    called = np.flatnonzero(role >= 0)
    communicator[called] = job.communicator[rank[called], role[called]]
    offsets, dependencies = _dependencies(job, programs, lengths)
    tasks = TaskGraph(
        resource=resource,
        duration=duration,
        priority=_joined(programs, lambda program: program.priority, np.int32),
        offsets=offsets,
        dependencies=dependencies,
        meeting=_meetings(kind, communicator, rank),
        awaited=_awaited(kind, communicator),
        route=np.full(len(rank), -1, dtype=np.int32),
        demand=np.zeros(len(rank)),
        route_offsets=np.zeros(1, dtype=np.int64),
        routes=np.zeros(0, dtype=np.int32),
        bandwidth=np.zeros(0),
        policy=policy,
    )
    if job.communicators.network is None:
        return tasks
    size = _joined(programs, lambda program: program.size, np.int64)
    return _over_network(tasks, job.communicators.network, kind, communicator, size)


def _over_network(
    tasks: TaskGraph, network: Stations, kind: Codes, communicator: Ints, size: Ints
) -> TaskGraph:
    connections = network.connections
    carried = (communicator >= 0) & (communicator < len(connections))
    receives = np.flatnonzero((kind == RECEIVE) & carried)
    sends = np.flatnonzero((kind == SEND) & carried)
    sizes, code = np.unique(size[sends], return_inverse=True)
    pairs, pair = np.unique(communicator[sends] * len(sizes) + code, return_inverse=True)
    demands = [
        connections[pair // len(sizes)].demand(float(sizes[pair % len(sizes)]))
        for pair in pairs.tolist()
    ]
    demand = np.array(demands, dtype=np.float64)[pair]
    shares = np.array([bool(way.stations) for way in connections], dtype=np.bool_)
    duration, route, asks = tasks.duration.copy(), tasks.route.copy(), tasks.demand.copy()
    duration[receives] = np.array([way.propagation(0.0) for way in connections], dtype=np.int64)[
        communicator[receives]
    ]
    duration[sends] = np.where(shares[communicator[sends]], 0, demand)
    route[sends] = np.where(shares[communicator[sends]], communicator[sends], -1)
    asks[sends] = np.where(shares[communicator[sends]], demand, 0.0)
    # Messages that keep no lane busy keep their connection busy.
    without = sends[tasks.resource[sends] < 0]
    ways, way = np.unique(communicator[without], return_inverse=True)
    resource = tasks.resource.copy()
    resource[without] = len(tasks.policy) + way
    fifo = np.full(len(ways), POLICIES.index("fifo"), dtype=np.int32)
    hops = [len(route) for route in network.routes]
    return replace(
        tasks,
        resource=resource,
        duration=duration,
        route=route,
        demand=asks,
        route_offsets=np.concatenate(([0], np.cumsum(hops))).astype(np.int64),
        routes=np.array([station for route in network.routes for station in route], dtype=np.int32),
        bandwidth=np.array(network.capacity, dtype=np.float64),
        policy=np.concatenate((tasks.policy, fifo)),
        sharing=network.sharing,
    )


def first_rows(job: Job) -> Ints:
    """Return the row of the first task of every rank, and the number of all: R + 1 offsets."""
    lengths = np.array([len(program) for program in job.programs], dtype=np.int64)
    return np.concatenate(([0], np.cumsum(lengths[job.program]))).astype(np.int64)


def task_label(job: Job, task: int) -> str:
    """Return the name of a task of the expanded job in messages: its rank, its name, its row."""
    first = first_rows(job)
    rank = int(np.searchsorted(first, task, side="right")) - 1
    row = task - int(first[rank])
    name = job.names[job.programs[job.program[rank]].name[row]]
    return f"{job.labels[rank]}: {name} (row {row})"


def _joined(programs: list[Program], column: Callable[[Program], Any], dtype: Any) -> Any:
    columns = [column(program) for program in programs]
    return np.concatenate(columns, dtype=dtype) if columns else np.zeros(0, dtype=dtype)


def _durations(job: Job) -> Ints:
    """Return the picoseconds of all tasks: ranks of one program and speed have the same."""
    of_rank = list(zip(job.program.tolist(), job.speed.tolist(), strict=True))
    known = {
        (program, speed): picoseconds(job.programs[program], speed, job.names)
        for program, speed in dict.fromkeys(of_rank)
    }
    return np.concatenate([np.zeros(0, dtype=np.int64), *(known[template] for template in of_rank)])


def _resources(job: Job, programs: list[Program], rank: Ints) -> tuple[Codes, Codes]:
    lane = _joined(programs, lambda program: program.lane, np.int32)
    slot = np.where(lane >= 0, rank * len(job.lanes) + lane, -1)
    is_used = np.zeros(job.ranks * len(job.lanes) + 1, dtype=np.bool_)  # the last one is for -1
    is_used[slot] = True
    is_used[-1] = False
    number = np.where(is_used, np.cumsum(is_used) - 1, -1).astype(np.int32)
    codes = np.array([POLICIES.index(policy) for policy in job.policies], dtype=np.int32)
    return number[slot], np.tile(codes, job.ranks)[is_used[:-1]]


def _dependencies(job: Job, programs: list[Program], lengths: Ints) -> tuple[Ints, Ints]:
    edges = np.array([len(program.dependencies) for program in programs], dtype=np.int64)
    counts = _joined(programs, lambda program: np.diff(program.offsets), np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    dependencies = _joined(programs, lambda program: program.dependencies, np.int64)
    return offsets, dependencies + np.repeat(first_rows(job)[:-1], edges)


def _meetings(kind: Codes, communicator: Ints, rank: Ints) -> Codes:
    """Return for every task the number of its collective: communicator by communicator."""
    meeting = np.full(len(kind), -1, dtype=np.int32)
    rows = np.flatnonzero((kind == COLLECTIVE) & (communicator >= 0))
    if len(rows):
        called = communicator[rows]
        ordinal = _ordinals(rank[rows] * (called.max() + 1) + called)
        most = np.zeros(called.max() + 1, dtype=np.int64)
        np.maximum.at(most, called, ordinal + 1)
        meeting[rows] = (np.cumsum(most) - most)[called] + ordinal
    return meeting


def _awaited(kind: Codes, communicator: Ints) -> Ints:
    """Return for every receive the row of its send; -1 for all others."""
    awaited = np.full(len(kind), -1, dtype=np.int64)
    sends = np.flatnonzero((kind == SEND) & (communicator >= 0))
    receives = np.flatnonzero((kind == RECEIVE) & (communicator >= 0))
    if len(sends) and len(receives):
        sent, wanted = (
            communicator[rows] * len(kind) + _ordinals(communicator[rows])
            for rows in (sends, receives)
        )
        order = np.argsort(sent)
        place = np.minimum(np.searchsorted(sent[order], wanted), len(sends) - 1)
        sender = sends[order[place]]
        awaited[receives] = np.where(sent[order[place]] == wanted, sender, -1)
    return awaited


def _ordinals(group: Ints) -> Ints:
    """Return the number of earlier entries with the same number as each."""
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    counts = np.diff(first, append=len(group))
    ordinals = np.empty(len(group), dtype=np.int64)
    ordinals[order] = np.arange(len(group)) - np.repeat(first, counts)
    return ordinals


PICOSECOND = 1e-12
"""Seconds."""

LONGEST = 9e6
"""Seconds that a job may take: 104 days; 2**63 picoseconds are 106."""


def picoseconds(program: Program, speed: float, names: tuple[str, ...]) -> Ints:
    """Return the n durations of a program on a rank of this relative speed, rounded.

    Only tasks of the rank alone (kind "task") depend on its speed.

    Raises:
        InputError: a duration is missing, negative or endless, or all of them last too long.
    """
    is_task = program.kind == KINDS.index("task")
    seconds = np.where(is_task, program.duration / speed, program.duration)
    for row in np.flatnonzero(~(np.isfinite(seconds) & (seconds >= 0)))[:1]:
        name = names[program.name[row]]
        raise InputError(f"task {row} ({name}): its duration is {program.duration[row]} s")
    if seconds.sum() > LONGEST:
        raise InputError(
            f"the tasks of one rank take {seconds.sum():.3g} s: a replay supports at most "
            f"{LONGEST:.3g} s"
        )
    return np.rint(seconds * 1e12).astype(np.int64)
