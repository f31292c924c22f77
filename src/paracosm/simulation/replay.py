"""Replay of a whole job, all its ranks on all their lanes, and of one replica on one device."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.compiled import compiled, compiled_whole, shaped
from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES, Graph, host_nodes, waiting_nodes
from paracosm.jobs.check import check_job
from paracosm.jobs.expand import PICOSECOND, expand, first_rows, picoseconds, task_label
from paracosm.jobs.job import KINDS, Job
from paracosm.rng import SimulationStream, checked_seed, stream_keys
from paracosm.simulation.events import replay_tasks
from paracosm.simulation.folding import fold_ranks, unfolded
from paracosm.simulation.interference import interferes, slowed
from paracosm.simulation.static import JobSchedule, play_static, schedule_of
from paracosm.simulation.straggler_penalty import store_order, with_straggler_penalty
from paracosm.timing.compiled import normal_quantile, uniform
from paracosm.units import real


def replay_job(
    job: Job, *, fold: bool = True, duration_cv: float = 0.0, seed: int = 0
) -> JobSchedule:
    """Return when every task of a job runs.

    If all lanes run in order and no links are shared, that is a longest path, in which equal ranks
    are replayed once. Otherwise events are played one by one, and every rank separately. Computing
    beside collectives is slowed as `Job.slowdown` says (`interference.py`).

    Args:
        job: what runs.
        fold: whether equal ranks are replayed as one; the instants are the same, to the bit.
        duration_cv: coefficient of variation of each task of the ranks' own, lognormal around its
            duration. Alike ranks then differ: folded, the time that they lose by waiting for the
            slowest is estimated (`straggler_penalty.py`); otherwise every task is drawn.
        seed: of the draws.

    Raises:
        InputError: arrays that do not go together; communication that does not match; a duration
            that cannot be; ranks that wait for each other for ever; a coefficient of variation or a
            seed below 0.
    """
    _check_duration_cv(duration_cv, seed)
    check_job(job)
    if not job.is_static:
        duration = drawn_durations(job, duration_cv, seed) if duration_cv else None
        if interferes(job):
            nominal = drawn_durations(job, 0.0, seed) if duration is None else duration
            duration = slowed(job, nominal, lambda lengths: _by_events(job, lengths))
        return _by_events(job, duration)
    folding = fold_ranks(job) if fold else unfolded(job)
    drawn = drawn_durations(job, duration_cv, seed) if duration_cv and not fold else None
    played = play_static(job, folding, drawn)
    if interferes(job):
        lengths = slowed(
            *(job, played.lengths),
            lambda lengths: schedule_of(play_static(job, folding, lengths)),
        )
        played = play_static(job, folding, lengths)
    if duration_cv and fold:
        played = with_straggler_penalty(played, store_order(played), duration_cv)
    return schedule_of(played)


def _by_events(job: Job, duration: Ints | None) -> JobSchedule:
    """Play a job in which the order of tasks, or the rates of messages, depend on events."""
    times = replay_tasks(expand(job, duration), functools.partial(task_label, job))
    ranks = np.arange(job.ranks, dtype=np.int32)
    return JobSchedule(
        job=job,
        class_of=ranks,
        representative=ranks,
        first=first_rows(job),
        arrive=times.arrive.astype(np.float64) * PICOSECOND,
        begin=times.begin.astype(np.float64) * PICOSECOND,
        end=times.end.astype(np.float64) * PICOSECOND,
    )


TASK = KINDS.index("task")


def drawn_durations(job: Job, duration_cv: float, seed: int) -> Ints:
    """Return picoseconds of the tasks of all ranks, one rank after the other.

    Tasks of a rank's own are lognormal around their duration, with the coefficient of variation
    `duration_cv`; communication is unchanged. Every rank has a random stream of its own, and every
    task a number in it.
    """
    _check_duration_cv(duration_cv, seed)
    sigma = math.sqrt(math.log1p(duration_cv**2))
    keys = stream_keys(seed, SimulationStream.TASKS, job.ranks)
    known: dict[tuple[int, float], Ints] = {}
    columns = []
    for rank, key in enumerate(keys):
        program, speed = int(job.program[rank]), float(job.speed[rank])
        if (program, speed) not in known:
            known[program, speed] = picoseconds(job.programs[program], speed, job.names)
        lengths = known[program, speed].copy()
        _vary(lengths, job.programs[program].kind, key, sigma)
        columns.append(lengths)
    return np.concatenate([*columns, np.zeros(0, dtype=np.int64)])


def _check_duration_cv(duration_cv: float, seed: int) -> None:
    if not 0 <= real(duration_cv) <= 1:
        raise InputError(f"a coefficient of variation is from 0 to 1, not {duration_cv}")
    checked_seed(seed)


@shaped("n: lengths kind")
@compiled
def _vary(lengths: Any, kind: Any, key: Any, sigma: float) -> None:
    """Multiply the durations of a rank's own tasks by factors of mean 1."""
    for row in range(lengths.size):
        if kind[row] == TASK:
            normal = normal_quantile(uniform(key, row))
            lengths[row] = np.int64(round(lengths[row] * math.exp(sigma * normal - sigma**2 / 2)))


@dataclass(frozen=True, eq=False)
class Schedule:
    """Begin and end of the n nodes of a graph, in seconds from the beginning of the iteration.

    A node has a span on the host, which issues it, and a span on the lane of its resource. If the
    host itself executes it (a view; everything on a synchronous device) the two are one.
    """

    issue: Floats  # n instants at which the host turns to the node
    issued: Floats  # n instants at which the host goes on to the next one
    begin: Floats  # n instants at which the node begins on its own lane
    end: Floats  # n instants at which it ends there
    on_host: Bools  # n booleans: carried out by the host

    @property
    def makespan(self) -> float:
        """The instant at which the last lane is done; 0 of an empty graph."""
        if not len(self.end):
            return 0.0
        return float(max(self.end.max(), self.issued.max()))


def replay(
    graph: Graph, duration: Floats, *, asynchronous: bool = False, launch: float | Floats = 0.0
) -> Schedule:
    """Return when every node runs.

    The host takes the nodes in the order of their ids. On a synchronous device (a CPU) it executes
    every compute and host node itself, one after the other. On an asynchronous device (a GPU) it
    spends `launch` on a compute node and goes on; the node enters the device's stream, which is
    first in, first out, and begins once it is issued, the stream is free and its dependencies have
    ended. A host node (a view, a size) takes its duration on the host and nothing on the device,
    without waiting for values; one that reads a value (`aten._local_scalar_dense`) waits for all
    that is in the stream. Copies ("memory") and communication are issued like that on every device,
    each to a lane of its own, in order.

    Args:
        graph: whose nodes; `graph.duration` is ignored.
        duration: n seconds on the node's own lane.
        asynchronous: whether the host runs ahead of the device.
        launch: seconds that the host spends on issuing a node that it does not execute: one number,
            or n.

    Raises:
        InputError: a duration or a launch time is missing (NaN), negative or infinite.
    """
    count = len(graph)
    times = np.ascontiguousarray(duration, dtype=np.float64)
    launches = np.ascontiguousarray(np.broadcast_to(launch, (count,)), dtype=np.float64)
    for what, values in (("duration", times), ("launch time", launches)):
        if values.shape != (count,):
            raise InputError(f"replay: {len(values)} values of {what} for {count} nodes")
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"replay: the {what} of node {int(graph.id[row])} "
                f"({graph.ops[graph.op[row]].name}) is {values[row]} s"
            )
    on_host = host_nodes(graph, asynchronous)
    issue, issued, begin, end = np.zeros((4, count))
    _play(
        graph.resource,
        on_host,
        waiting_nodes(graph, asynchronous),
        times,
        launches,
        graph.offsets,
        graph.dependencies,
        np.zeros(len(RESOURCES)),
        np.zeros(count),
        issue,
        issued,
        begin,
        end,
    )
    return Schedule(issue, issued, begin, end, on_host)


@shaped(
    "n: lane on_host waits duration launch ready issue issued begin end; n+1: offsets; "
    "edges: dependencies"
)
@compiled_whole
def _play(
    lane: Any,
    on_host: Any,
    waits: Any,
    duration: Any,
    launch: Any,
    offsets: Any,
    dependencies: Any,
    free: Any,
    ready: Any,
    issue: Any,
    issued: Any,
    begin: Any,
    end: Any,
) -> None:
    """Fill the instants of every node in the order of the host: as in a longest path.

    `waits` says where the host waits for what the node depends on and for the stream;
    `free` holds the instant at which each lane is free again, `ready` that of each result.
    """
    compute, host = 0, 1  # indices into RESOURCES; a test holds them to that
    for node in range(lane.size):
        there = 0.0
        for place in range(offsets[node], offsets[node + 1]):
            there = max(there, ready[dependencies[place]])
        start = free[host]
        if on_host[node]:
            if waits[node]:
                start = max(max(start, there), free[compute])  # its stream is in order
            issue[node] = start
            issued[node] = start + duration[node]
            begin[node] = start
            end[node] = issued[node]
            ready[node] = max(end[node], there)
        else:
            issue[node] = start
            issued[node] = start + launch[node]
            begin[node] = max(max(issued[node], there), free[lane[node]])
            end[node] = begin[node] + duration[node]
            free[lane[node]] = end[node]
            ready[node] = end[node]
        free[host] = issued[node]
