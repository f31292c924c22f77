"""Algorithm 3.1, and what has been added to it, event by event.

Z. Li, W. Yan, M. Paolieri, L. Golubchik, "Throughput Prediction of Asynchronous SGD in TensorFlow",
ICPE 2020. The names are the paper's, and comments tell the lines of its Algorithm 3.1: at every
event all chunks that run are looked at and brought up to date. Beside the paper's there are several
servers, ports of workers, background flows, priorities, delays, cores and synchronous training.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

import numpy as np
import numpy.typing as npt
from steps_cores import Cores
from steps_iterations import Iterations
from steps_scheduler import Chunk, Scheduler
from steps_sharing import Flow, Ports, Sharing, max_min

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.simulation.simulate import CHUNK, Simulated
from paracosm.simulation.system import DOWN, UP, Routes, System, Workload

__all__ = ["Happened", "port_bandwidths", "requests_and_ends", "simulate_literally"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Event = tuple[float, int, int, int]
"""When, in seconds; whose, or `EVERYBODY`; in which lane, `BEFORE` or after all lanes; and a
number that counts up. What is at one time happens in the order of the others."""

EVERYBODY = BEFORE = -1


def simulate_literally(
    workload: Workload,
    system: System,
    drawn: Ints,
    *,
    until: float = inf,
    keep_chunks: bool = False,
    share: Sharing = max_min,
) -> Simulated:
    """Return the virtual times of all steps, and of all chunks if they are to be kept.

    Args:
        workload: the steps that are drawn from.
        system: the cluster.
        drawn: which step of the workload worker w's k-th step is, (workers, steps).
        until: seconds after which nothing is carried out.
        keep_chunks: whether the result has the chunks.
        share: how the transfers of one direction share the ports.
    """
    simulation = _Simulation(workload, system, drawn, share)
    simulation.generate_trace(until)
    return Simulated(
        simulation.step_begin,
        simulation.step_end,
        np.array(simulation.trace if keep_chunks else [], dtype=CHUNK),
        simulation.accepted,
    )


Happened = tuple[float, int, int, int]
"""When, in seconds; to which worker, in its step of which number, and to which op of it."""


def requests_and_ends(
    workload: Workload, system: System, drawn: Ints
) -> tuple[Simulated, list[Happened], list[Happened]]:
    """Return the virtual times of all steps, and when ops were handed on and ended, in order."""
    simulation = _Simulation(workload, system, drawn, max_min)
    simulation.generate_trace(inf)
    simulated = Simulated(
        simulation.step_begin, simulation.step_end, np.array([], CHUNK), simulation.accepted
    )
    return simulated, simulation.requests, simulation.ends


def port_bandwidths(routes: Routes) -> list[tuple[Floats, Floats]]:
    """Return what `port_routes` was given: ports of servers and of workers, by direction."""
    hops = routes.hops
    return [
        (routes.capacity[hops[way, 0, :, 0]], routes.capacity[hops[way, :, 0, 1]])
        for way in (DOWN, UP)
    ]


class _Simulation:
    """Workers and servers at one time, and what may happen to them."""

    def __init__(self, workload: Workload, system: System, drawn: Ints, share: Sharing) -> None:
        self.workload = workload
        self.system = system
        self.drawn = drawn.tolist()
        self.share = share
        servers = range(system.servers)
        # A worker's lanes, each one of the paper's four resources: Downlink_i, uplink_i, ps_i.
        self.lanes = [(DOWNLINK, i) for i in servers]
        self.lanes += [(WORKER, 0)]
        self.lanes += [(UPLINK, i) for i in servers]
        self.lanes += [(SERVER, i) for i in servers]
        self.after = len(self.lanes)

        self.now = 0.0
        self.Q: dict[tuple[int, int], Chunk] = {}  # what runs, by worker and lane
        self.later: dict[Event, Callable[[], None]] = {}  # what happens at a known time
        self.numbers = 0  # of what was put there
        self.background = {DOWNLINK: 0, UPLINK: 0}
        self.rates: dict[tuple[int, int, frozenset[tuple[Flow, float]]], dict[Flow, float]] = {}

        workers = range(system.workers)
        self.scheduler = {
            (w, r): self.empty_scheduler(r) for w in workers for r in range(len(self.lanes))
        }
        self.completed_steps = [0 for _ in workers]  # line 3
        self.waiting_for: list[list[int]] = [[] for _ in workers]  # by op: how many others
        self.unfinished = [0 for _ in workers]  # ops of its step
        self.cores = [Cores(system.cores) for _ in servers]
        self.iterations = Iterations(system.workers, system.backup, system.slack)

        self.step_begin = np.full(drawn.shape, np.nan)
        self.step_end = np.full(drawn.shape, np.nan)
        self.accepted = np.full(drawn.shape, system.backup is None)
        self.trace: list[tuple[int, int, int, int, float, float]] = []  # line 7
        self.requests: list[Happened] = []
        self.ends: list[Happened] = []

        for number, time in enumerate(system.background_times.tolist()):
            self.at(time, EVERYBODY, BEFORE, partial(self.change_background, number))
        for w, time in enumerate(system.start.tolist()):
            if self.drawn[w]:
                self.at(time, w, BEFORE, partial(self.start_step, w))  # line 6

    def empty_scheduler(self, r: int) -> Scheduler:
        """Return the scheduler of a lane before anything waits in it (line 5)."""
        if self.lanes[r][0] in (WORKER, SERVER):
            return Scheduler()
        priority = self.system.priority
        return Scheduler(self.system.window, None if priority is None else priority.tolist())

    # Time passes

    def at(self, time: float, w: int, r: int, happen: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self.numbers += 1
        self.later[time, w, r, self.numbers] = happen

    def generate_trace(self, until: float) -> None:
        """Let one event after the other happen (line 9)."""
        while (event := self.next_event()) is not None and event[0] <= until:
            self.let_pass(event[0])
            _, w, r, _ = event
            happen = self.later.pop(event, partial(self.end_chunk, w, r))
            happen()

    def next_event(self) -> Event | None:
        """Return the end of the chunk that is over first (lines 10 to 13), or what is before it."""
        ends = [(self.now + x.remaining / rate, w, r, 0) for (w, r), x, rate in self.running()]
        return min([*ends, *self.later], default=None)

    def let_pass(self, time: float) -> None:
        """Update remaining times (lines 16 and 17)."""
        duration = time - self.now
        if duration > 0:
            for _, x, rate in self.running():
                x.remaining = max(0.0, x.remaining - duration * rate)
        self.now = time

    def running(self) -> list[tuple[tuple[int, int], Chunk, float]]:
        """Return the chunks that run, and for each the bytes or seconds that it does in a second.

        Processing is independent for each worker (line 3 of `Share`).
        """
        rates = {direction: self.rates_in(direction) for direction in (DOWNLINK, UPLINK)}
        running = []
        for (w, r), x in self.Q.items():
            resource, server = self.lanes[r]
            rate = rates[resource][w, server] if resource in rates else 1.0
            running.append(((w, r), x, rate))
        return running

    def rates_in(self, direction: int) -> dict[Flow, float]:
        """Return the rates of the active transfers of a direction (`Share`)."""
        active = {
            (w, self.lanes[r][1]): self.weight(w)
            for w, r in self.Q
            if self.lanes[r][0] == direction
        }
        state = direction, self.background[direction], frozenset(active.items())
        if state not in self.rates:
            system = self.system
            way = DOWN if direction == DOWNLINK else UP
            servers, workers = port_bandwidths(system.routes)[way]
            ports = Ports(
                tuple(servers.tolist()), tuple(workers.tolist()), self.background[direction]
            )
            self.rates[state] = self.share(active, ports)
        return self.rates[state]

    def weight(self, w: int) -> float:
        """Return the weight of a worker's transfers in its step."""
        if self.system.weight is None:
            return 1.0
        return float(self.system.weight[w, self.completed_steps[w]])

    # Events

    def change_background(self, number: int) -> None:
        """Let other flows come or go."""
        self.background[DOWNLINK] = int(self.system.background_down[number])
        self.background[UPLINK] = int(self.system.background_up[number])

    def start_step(self, w: int) -> None:
        """Hand a drawn step to the schedulers of a worker (`StartRandomStep`)."""
        k = self.completed_steps[w]
        self.step_begin[w, k] = self.now
        self.iterations.begin(w)
        self.waiting_for[w] = self.workload.waits.tolist()
        self.unfinished[w] = self.workload.ops
        step = self.drawn[w][k]
        roots, release = self.workload.roots[step], self.workload.release[step]
        for op, after in zip(roots.tolist(), release.tolist(), strict=True):
            if after > 0:
                self.at(self.now + after, w, self.after, partial(self.start_op, w, op))
            else:
                self.add(w, op)
        self.start_chunks(w)

    def start_op(self, w: int, op: int) -> None:
        """Hand on an op that was to wait for its time only."""
        self.add(w, op)
        self.start_chunks(w)

    def end_chunk(self, w: int, r: int) -> None:
        """Let a chunk be over, and with its last one, now or after a delay, its op."""
        chunk = self.Q.pop((w, r))  # line 11
        step = self.completed_steps[w]
        self.trace.append((w, step, chunk.op, chunk.turn, chunk.begin, self.now))  # line 15
        resource, server = self.lanes[r]
        if resource == SERVER:
            next_worker = self.cores[server].release()
            if next_worker is not None:
                self.start_chunk(next_worker, r)
        delay = 0.0 if resource in (WORKER, SERVER) else self.delay(w, chunk.op)
        if not chunk.is_last:
            self.scheduler[w, r].add(chunk.op, chunk.rest, turn=1)
        elif delay > 0:
            self.at(self.now + delay, w, self.after, partial(self.end_late, w, chunk.op))
        else:
            self.end_op(w, chunk.op)
        self.start_chunks(w)

    def end_late(self, w: int, op: int) -> None:
        """Let a transfer be over whose lane has long been free."""
        self.end_op(w, op)
        self.start_chunks(w)

    def end_op(self, w: int, op: int) -> None:
        """Hand on those that waited for this op as their last (lines 19 to 28)."""
        self.ends.append((self.now, w, self.completed_steps[w], op))
        first, last = self.workload.first_dependent[op : op + 2]
        for d in self.workload.dependents[first:last].tolist():
            self.waiting_for[w][d] -= 1
            if self.waiting_for[w][d] == 0:
                self.add(w, d)
        self.unfinished[w] -= 1
        if self.unfinished[w] == 0:
            self.end_step(w)

    def end_step(self, w: int) -> None:
        """Let a step be over, and let those that it kept waiting go on (lines 36 to 38)."""
        k = self.completed_steps[w]
        self.completed_steps[w] += 1
        self.step_end[w, k] = self.now
        self.accepted[w, k], released = self.iterations.end(w)
        for other in released:
            k = self.completed_steps[other]
            if k < len(self.drawn[other]):
                gap = float(self.workload.gap[self.drawn[other][k - 1]])
                self.at(self.now + gap, other, BEFORE, partial(self.start_step, other))

    # Schedulers

    def add(self, w: int, op: int) -> None:
        """Put an op into the scheduler of the resource that it needs."""
        self.requests.append((self.now, w, self.completed_steps[w], op))
        resource, server = int(self.workload.resource[op]), int(self.workload.server[op])
        if resource in (WORKER, SERVER):
            size = self.seconds(w, op)
            if resource == WORKER:
                size /= float(self.system.speed[w])
        else:
            size = float(self.workload.size[op])
        self.scheduler[w, self.lanes.index((resource, server))].add(op, size)

    def start_chunks(self, w: int) -> None:
        """Let the next chunk begin in all lanes of a worker where none runs (lines 29 to 31)."""
        for r, (resource, server) in enumerate(self.lanes):
            idle = (w, r) not in self.Q and len(self.scheduler[w, r]) > 0
            if idle and (resource != SERVER or self.cores[server].ask(w)):
                self.start_chunk(w, r)

    def start_chunk(self, w: int, r: int) -> None:
        """Let the next chunk begin."""
        chunk = self.scheduler[w, r].remove_chunk()
        chunk.begin = self.now
        self.Q[w, r] = chunk

    def delay(self, w: int, op: int) -> float:
        """Return the seconds from a transfer's last byte until those that wait for it may begin."""
        return self.seconds(w, op) + float(self.system.routes.latency[0, w, 0])

    def seconds(self, w: int, op: int) -> float:
        """Return the seconds of an op in a worker's step."""
        return float(self.workload.seconds[self.drawn[w][self.completed_steps[w]], op])
