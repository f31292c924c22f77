"""Small jobs with parameter servers as coroutines of the engine, and the same jobs simulated.

The engine's ports serve one transfer after the other and do not share, so what is compared is what
both can say: one worker with any graph of ops, whose transfers wait for its two ports; several
workers that wait for the cores of a server and for one another; and several whose transfers are not
under way at one time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_systems import plain_system
from random_workloads import workloads
from small_workloads import compute, down, times, up, update, workload_of
from steps_reference import simulate_literally

from paracosm.cluster import Link
from paracosm.engine import Barrier, Queue, Resource, Simulator, Transfer, Worker
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.simulation.system import System, Workload

Times = dict[tuple[str, int, int], tuple[float, float]]
"""Begin and end of each op of each step of each worker."""


class OneLink:
    """A network of one kind of link; latency passes when the ports are free again."""

    def __init__(self, bandwidth: float, latency: float) -> None:
        self.both_ways = Link(bandwidth, latency, pipelined=True, sharing="serial")

    def link(self, source: str, target: str) -> Link:
        return self.both_ways


class Server(Worker):
    """Knows who sent it what: transfers that arrive go to the sender's step."""

    async def run(self) -> None:
        while True:
            transfer = await self.recv_transfer()
            trainer = self.sim.workers[transfer.source]
            assert isinstance(trainer, Trainer)
            trainer.arrived(transfer)


class Trainer(Worker):
    """Walks through its steps: ops start as soon as the last that they wait for has ended."""

    def __init__(
        self,
        workload: Workload,
        drawn: list[int],
        start: float,
        cores: Resource | None,
        barrier: Barrier | None,
    ) -> None:
        self.workload = workload
        self.drawn = drawn
        self.begins = start
        self.cores = cores
        self.barrier = barrier
        self.queues = {resource: Queue[int](self.sim) for resource in (WORKER, SERVER)}
        self.ended = Queue[int](self.sim)
        self.times: Times = {}
        self.k = 0

    async def run(self) -> None:
        self.sim.spawn(self.receive(), daemon=True)
        for resource in self.queues:
            self.sim.spawn(self.work(resource), daemon=True)
        await self.sleep(self.begins)
        workload = self.workload
        for k, step in enumerate(self.drawn):
            self.k = k
            waits = workload.waits.tolist()
            for op in workload.roots[step].tolist():
                self.start_op(op)
            for _ in range(workload.ops):
                op = await self.ended.get()
                first, last = workload.first_dependent[op : op + 2]
                for dependent in workload.dependents[first:last].tolist():
                    waits[dependent] -= 1
                    if waits[dependent] == 0:
                        self.start_op(dependent)
            if self.barrier is not None:
                await self.barrier.wait()
            await self.sleep(float(workload.gap[step]))

    def start_op(self, op: int) -> None:
        resource, size = self.workload.resource[op], float(self.workload.size[op])
        if resource == DOWNLINK:
            self.sim.workers["server"].send(self.name, op, size=size)
        elif resource == UPLINK:
            self.send("server", op, size=size)
        else:
            self.queues[int(resource)].put_nowait(op)

    async def receive(self) -> None:
        while True:
            self.arrived(await self.recv_transfer())

    def arrived(self, transfer: Transfer) -> None:
        over = transfer.began + transfer.occupancy
        self.ends(transfer.data, transfer.began, over)

    async def work(self, resource: int) -> None:
        while True:
            op = await self.queues[resource].get()
            shared = self.cores if resource == SERVER else None
            if shared is not None:
                await shared.acquire()
            began = self.sim.now
            await self.sleep(float(self.workload.seconds[self.drawn[self.k], op]))
            self.ends(op, began, self.sim.now)
            if shared is not None:
                shared.release()

    def ends(self, op: int, began: float, ended: float) -> None:
        self.times[self.name, self.k, op] = began, ended
        self.ended.put_nowait(op)


def engine_times(workload: Workload, system: System, drawn: np.ndarray) -> Times:
    """Return what the coroutines make of the job."""
    sim = Simulator(
        network=OneLink(float(system.routes.bandwidth.max()), float(system.routes.latency.max()))
    )
    sim.add_worker("server", Server, daemon=True)
    cores = Resource(sim, system.cores) if system.cores else None
    barrier = None if system.backup is None else Barrier(sim, system.workers)
    trainers = [
        sim.add_worker(f"worker{w}", Trainer, workload, own, start, cores, barrier)
        for w, (own, start) in enumerate(zip(drawn.tolist(), system.start.tolist(), strict=True))
    ]
    sim.start()
    return {key: value for trainer in trainers for key, value in trainer.times.items()}


def simulated_times(workload: Workload, system: System, drawn: np.ndarray) -> Times:
    """Return the simulation's, in which no op has two turns."""
    chunks: list[Any] = simulate_literally(
        workload, system, drawn, keep_chunks=True
    ).chunks.tolist()
    return {(f"worker{w}", k, op): (begin, end) for w, k, op, _, begin, end in chunks}


def agree(workload: Workload, system: System, drawn: np.ndarray) -> None:
    expected = engine_times(workload, system, drawn)
    got = simulated_times(workload, system, drawn)
    assert len(expected) == workload.ops * drawn.size
    assert got.keys() == expected.keys()
    for key in got:
        assert got[key] == pytest.approx(expected[key], rel=1e-9, abs=1e-9), key


@st.composite
def jobs_of_one_server(draw: st.DrawFn) -> tuple[Workload, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return draw(workloads(rng, 1, plain=True)), rng


@settings(deadline=None, max_examples=100)
@given(jobs_of_one_server(), st.floats(0.3, 3.0), st.sampled_from([0.0, 0.137]))
def test_one_worker_and_any_graph(
    job: tuple[Workload, np.random.Generator], bandwidth: float, latency: float
) -> None:
    """All four lanes: transfers queue at the engine's ports, computations at queues."""
    workload, rng = job
    system = plain_system(1, 1, bandwidth, latency=latency)
    agree(workload, system, rng.integers(workload.steps, size=(1, 3)))


@settings(deadline=None, max_examples=50)
@given(
    jobs_of_one_server(),
    st.integers(2, 4),
    st.sampled_from([(0, None), (1, None), (2, None), (0, 0)]),
)
def test_workers_that_share_cores_or_iterations(
    job: tuple[Workload, np.random.Generator], workers: int, shared: tuple[int, int | None]
) -> None:
    """Nothing to carry: workers meet at the cores of the server, or at the ends of iterations.

    Not at both: they would ask for cores at one time, where the two put them in different orders.
    """
    (workload, rng), (cores, backup) = job, shared
    idle = np.where(np.isin(workload.resource, (DOWNLINK, UPLINK)), SERVER, workload.resource)
    workload = replace(
        workload,
        resource=idle.astype(np.int8),
        size=np.zeros(workload.ops),
        seconds=rng.uniform(0.2, 2.0, workload.seconds.shape),
    )
    start = rng.uniform(0.0, 2.0, workers)
    system = replace(plain_system(workers, 1, 1.0, start=start), cores=cores, backup=backup)
    agree(workload, system, rng.integers(workload.steps, size=(workers, 3)))


def test_workers_whose_transfers_do_not_meet() -> None:
    """Steps of 1 s down, 3 s, 1.5 s up, 0.5 s on the server and a gap of 0.25: 6.25 s.

    Three workers 2 s apart are never at one port together: first down from 0, 2 and 4, up from 4,
    6 and 8.
    """
    step = workload_of(down(2), compute(3, [0]), up(3, [1]), update(0.5, [2]), gap=0.25)
    system = plain_system(3, 1, 2.0, start=np.array([0.0, 2.0, 4.0]))
    drawn = np.zeros((3, 3), np.int64)
    agree(step, system, drawn)
    result = simulate_literally(step, system, drawn, keep_chunks=True)
    assert times(result, 1)[:4] == [(0, 2, 3), (1, 3, 6), (2, 6, 7.5), (3, 7.5, 8)]
