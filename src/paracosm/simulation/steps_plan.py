"""The records and arrays that the compiled loop of parameter servers reads and writes."""

from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.compiled import columns
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.compiled import Traffic, make_traffic
from paracosm.network.heaps import NEVER, NOBODY
from paracosm.simulation.failures_kernel import Failures, make_failures
from paracosm.simulation.system import DOWNLINK, SERVER, UPLINK, WORKER, Routes, System, Workload
from paracosm.simulation.versions_kernel import Versions, make_versions

EVENTS, CHUNKS, DELAYS, BACKGROUND, ITERATION, READY_STEPS, CLOCK, FLOWS, SLOWEST = range(9)
"""In `Plan.counts`: size of the heap, chunks written, delays so far, changes of the background, the
iteration that is under way, how many steps were accepted for it, the instant, how many transfers
are in the network, and how many steps the slowest worker has ended."""

LEFT = -2
"""Instead of the op of a lane: bytes in the network of a worker that has failed."""

SHIFT = 32
"""An item of the heap is worker << SHIFT | lane + 1, so that ties are in the order of workers."""

EVENT = np.dtype([("key", "i8"), ("item", "i8"), ("op", "i8")])
LANE = np.dtype(columns("i8", "head", "tail", "op", "begin", "turn", "next", "flow"))
"""Ops that wait (first and last); the one that runs, since when, in which turn; the `next` worker
that waits for a core; the transfer in the network, `NOBODY` for one that asks it for nothing."""

TASK = np.dtype([("remaining", "f8"), ("missing", "i4"), ("next", "i4"), ("turn", "i4")])
"""An op of a worker's step: bytes left, prerequisites left, who waits behind it, turns begun."""

STAGE = np.dtype(
    columns("i8", "step", "drawn", "left", "iteration", "waits", "later", "updated", "lost")
)
"""A worker: number of its step, which profiled one it is, its ops that have not ended, the
iteration that it is for, whether the worker waits for that iteration's end, how many delays and
releases are to come, how many tensors the step has updated, and how many steps the worker has lost
by failures."""

WAY = np.dtype(
    [("route", "i8"), ("factor", "f8"), ("held", "f8"), ("is_flow", "i8"), ("latency", "i8")]
)
"""A way from or to a server: its route in the network, what a byte and what a message beside its
bytes asks for there, whether that is bytes and not picoseconds; picoseconds after it."""

CORE = np.dtype([("free", "i8"), ("head", "i8"), ("tail", "i8")])
"""Cores of a server: how many are free, first and last worker that waits for one."""

CHUNK = np.dtype([*columns("i4", "worker", "step", "op", "turn"), *columns("i8", "begin", "end")])
"""A piece of an op without interruption: whose, of the worker's step with this number (from 0), 0
for the op's first turn and 1 for its second, from when to when."""


class Plan(NamedTuple):
    """Everything that the loop reads and writes."""

    # the workload
    lane: Codes
    size: Floats
    duration: Ints
    waits: Codes
    first_dependent: Ints
    dependents: Codes
    is_local: Any
    roots: Codes
    release: Ints
    gap: Ints
    drawn: Ints
    # the system
    servers: int
    lanes: int
    window: float
    ordered: bool
    priority: Floats
    speed: Floats
    cores: int
    backup: int
    slack: int
    background_times: Ints
    background: Floats
    ports: Ints
    weighted: bool
    weight: Floats
    routes: Any
    # the state
    traffic: Traffic
    counts: Ints
    heap: Any
    lane_states: Any
    tasks: Any
    stages: Any
    core_states: Any
    standing: Ints
    # the result
    step_begin: Ints
    step_end: Ints
    accepted: Any
    chunks: Any
    versions: Versions
    failures: Failures


def lanes_of_ops(workload: Workload, servers: int) -> Codes:
    """Return the lane of each op: downlinks by server, computing, uplinks by server, servers."""
    offset = np.zeros(4, np.int64)
    offset[[DOWNLINK, WORKER, UPLINK, SERVER]] = (0, servers, servers + 1, 2 * servers + 1)
    lanes = np.where(workload.resource == WORKER, 0, workload.server)
    return (offset[workload.resource] + lanes).astype(np.int32)


def _local_ops(workload: Workload) -> Bools:
    """Return worker ops on which only worker ops wait; none if others can wake the worker."""
    of_worker, down = workload.resource == WORKER, workload.resource == DOWNLINK
    maker = np.repeat(np.arange(workload.ops), np.diff(workload.first_dependent))
    to_own = of_worker[workload.dependents]
    if not (of_worker | down)[maker[to_own]].all() or workload.waits[down].any():
        return np.zeros(workload.ops, bool)
    local: Bools = of_worker & (np.diff(workload.first_dependent) > 0)
    local[maker[~to_own]] = False
    return local


def write_plan(
    workload: Workload,
    system: System,
    drawn: Ints,
    most_chunks: int = 0,
    versions: Versions | None = None,
) -> Plan:
    """Return the arrays of a simulation that has not begun, with room for `most_chunks`.

    `versions` are of the tensors whose reads and updates are to be known.

    Raises:
        ValueError: the workload has servers that the system lacks, or other workers draw.
    """
    if workload.servers > system.servers or len(drawn) != system.workers:
        raise ValueError(
            f"{len(drawn)} workers draw and {workload.servers} servers are used, of "
            f"{system.workers} and {system.servers}"
        )
    workers, ops, servers = system.workers, workload.ops, system.servers
    lanes = 3 * servers + 1
    transfers = int(np.isin(workload.resource, (DOWNLINK, UPLINK)).sum())
    lane_states = np.zeros(workers * lanes, LANE)
    for name in ("head", "tail", "op", "next", "flow"):
        lane_states[name] = NOBODY
    core_states = np.zeros(servers, CORE)
    core_states["free"] = system.cores
    core_states["head"] = core_states["tail"] = NOBODY
    stages = np.zeros(workers, STAGE)
    # At once at most: a chunk of every computing lane, every delay, every root, the next step.
    most = lanes + 1 + transfers + workload.roots.shape[1]
    heap = np.zeros(workers * most, EVENT)
    order = np.lexsort((np.arange(workers), system.start))
    heap["key"][:workers] = _picoseconds(system.start[order])
    heap["item"][:workers] = order.astype(np.int64) << SHIFT
    counts = np.zeros(9, np.int64)
    counts[EVENTS] = workers
    slack = NOBODY if system.slack is None else min(system.slack, drawn.shape[1])
    of_none = np.full(ops, NOBODY)
    standing = np.zeros(slack + 3, np.int64)
    standing[0] = workers
    routes = system.routes
    has_background = bool(system.background_times.size)
    traffic = make_traffic(
        routes.sharing,
        routes.stations(),
        routes.capacity.tolist(),
        [1] * (2 * workers * servers),
        routes.ports.ravel().tolist() if has_background else (),
    )
    return Plan(
        lane=lanes_of_ops(workload, servers),
        size=np.ascontiguousarray(workload.size, float),
        duration=_picoseconds(workload.seconds),
        waits=workload.waits.astype(np.int32),
        first_dependent=workload.first_dependent.astype(np.int64),
        dependents=workload.dependents.astype(np.int32),
        is_local=_local_ops(workload) & (most_chunks == 0),
        roots=np.ascontiguousarray(workload.roots, np.int32),
        release=_picoseconds(workload.release),
        gap=_picoseconds(workload.gap),
        drawn=np.ascontiguousarray(drawn, np.int64),
        servers=servers,
        lanes=lanes,
        window=float(system.window),
        ordered=system.priority is not None,
        priority=np.zeros(ops) if system.priority is None else np.asarray(system.priority, float),
        speed=np.asarray(system.speed, float),
        cores=system.cores,
        backup=NOBODY if system.backup is None else system.backup,
        slack=slack,
        background_times=_picoseconds(system.background_times),
        background=np.stack([system.background_down, system.background_up]).astype(float),
        ports=np.ascontiguousarray(routes.ports),
        weighted=system.weight is not None,
        weight=np.ones((1, 1)) if system.weight is None else np.asarray(system.weight, float),
        routes=route_records(routes),
        traffic=traffic,
        counts=counts,
        heap=heap,
        lane_states=lane_states,
        tasks=np.zeros(workers * ops, TASK),
        stages=stages,
        core_states=core_states,
        standing=standing,
        step_begin=np.full(drawn.shape, NEVER, np.int64),
        step_end=np.full(drawn.shape, NEVER, np.int64),
        accepted=np.full(drawn.shape, system.backup is None),
        chunks=np.zeros(most_chunks, CHUNK),
        versions=versions or make_versions(of_none, of_none, workers, 1, False, 0),
        failures=make_failures(system.mtbf, system.restart, system.failure_keys),
    )


def route_records(routes: Routes) -> Any:
    """Return the records of all routes; serial or unlimited transfers request time, not bytes."""
    limit = np.append(routes.capacity, np.inf)[routes.hops].min(axis=-1, initial=np.inf)
    flows = (routes.sharing != "serial") & np.isfinite(limit)
    with np.errstate(invalid="ignore", over="ignore"):
        held = np.where(flows, routes.held * routes.bandwidth, routes.held * 1e12)
        factor = np.where(flows, 1.0, 1e12 / routes.bandwidth)
    records: Any = np.zeros(flows.size, WAY)
    records["route"] = np.arange(flows.size)
    records["factor"] = factor.ravel()
    records["held"] = held.ravel()
    records["is_flow"] = flows.ravel()
    records["latency"] = _picoseconds(routes.latency).ravel()
    return records


@np.errstate(over="ignore")
def _picoseconds(seconds: Floats) -> Ints:
    """Return whole picoseconds; values beyond the clock's range become its end."""
    most = float(LAST_INSTANT // 2)
    return np.ascontiguousarray(np.rint(np.minimum(np.asarray(seconds) * 1e12, most)), np.int64)
