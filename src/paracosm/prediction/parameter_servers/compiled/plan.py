"""A workload and a system as the arrays that the compiled loop works on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.simulated import CHUNK
from paracosm.prediction.parameter_servers.system import System
from paracosm.prediction.parameter_servers.workload import Workload
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER

__all__ = [
    "BACKGROUND",
    "CHUNKS",
    "DELAYS",
    "DOWN",
    "EVENTS",
    "ITERATION",
    "NOBODY",
    "READY_STEPS",
    "SHIFT",
    "UP",
    "Plan",
    "lanes_of_ops",
    "write_plan",
]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

DOWN, UP = range(2)
"""Directions: each has its ports."""

EVENTS, CHUNKS, DELAYS, BACKGROUND, ITERATION, READY_STEPS = range(6)
"""In `Plan.counts`: size of the heap, chunks written, delays so far, changes of the background,
the iteration that is under way, and how many steps were accepted for it."""

NOBODY = -1

SHIFT = 32
"""An item of the heap is worker << SHIFT | lane + 1, so that ties are in the order of workers."""

EVENT = np.dtype([("key", "f8"), ("item", "i8"), ("op", "i8")])
LANE = np.dtype(
    [
        ("head", "i8"),
        ("tail", "i8"),
        ("op", "i8"),
        ("begin", "f8"),
        ("turn", "i8"),
        ("next", "i8"),
        ("target", "f8"),
    ]
)
"""Ops that wait (first and last); the one that runs, since when, in which turn, its port's virtual
time when it ends; the `next` worker that waits for a core."""

TASK = np.dtype([("remaining", "f8"), ("missing", "i4"), ("next", "i4"), ("turn", "i4")])
"""An op of a worker's step: bytes left, prerequisites left, who waits behind it, turns begun."""

STAGE = np.dtype(
    [
        ("step", "i8"),
        ("drawn", "i8"),
        ("left", "i8"),
        ("iteration", "i8"),
        ("waits", "i8"),
        ("later", "i8"),
    ]
)
"""A worker: number of its step, which profiled one it is, its ops that have not ended, the
iteration that it is for, whether the worker waits for that iteration's end, and how many delays and
releases are to come."""

PORT = np.dtype(
    [
        ("period", "f8"),
        ("flows", "i8"),
        ("load", "f8"),
        ("background", "i8"),
        ("virtual", "f8"),
        ("since", "f8"),
        ("next", "f8"),
        ("first", "i8"),
        ("left", "f8"),
        ("unfixed", "f8"),
    ]
)
"""A port in one direction: seconds a byte, flows over it and the sum of their weights, flows in the
background, bytes that a flow of weight 1 got since the port was last idle, up to when that is
counted, when its next flow ends, where its heap begins; bytes/s not given away, weights without a
rate."""

FLOW = np.dtype(
    [
        ("item", "i8"),
        ("server", "i8"),
        ("worker", "i8"),
        ("remaining", "f8"),
        ("weight", "f8"),
        ("rate", "f8"),
        ("fixed", "i8"),
    ]
)

CORE = np.dtype([("free", "i8"), ("head", "i8"), ("tail", "i8")])
"""Cores of a server: how many are free, first and last worker that waits for one."""


class Plan(NamedTuple):
    """Everything that the loop reads and writes."""

    # the workload
    lane: Codes
    size: Floats
    seconds: Floats
    waits: Codes
    first_dependent: Ints
    dependents: Codes
    is_local: Any
    roots: Codes
    release: Floats
    gap: Floats
    drawn: Ints
    # the system
    servers: int
    lanes: int
    window: float
    ordered: bool
    priority: Floats
    speed: Floats
    latency: Floats
    cores: int
    backup: int
    background_times: Floats
    background: Ints
    weighted: bool
    weight: Floats
    # is by direction whether worker ports are wide enough never to matter
    is_simple: Ints
    # the state
    clock: Floats
    counts: Ints
    heap: Any
    lane_states: Any
    tasks: Any
    stages: Any
    ports: Any
    port_heap: Any
    worker_ports: Any
    flows: Any
    flow_counts: Ints
    flow_since: Floats
    flow_next: Floats
    core_states: Any
    # the result
    step_begin: Floats
    step_end: Floats
    accepted: Any
    chunks: Any


def lanes_of_ops(workload: Workload, servers: int) -> Codes:
    """Return the lane of each op: downlinks by server, computing, uplinks by server, servers."""
    offset = np.zeros(4, np.int64)
    offset[[DOWNLINK, WORKER, UPLINK, SERVER]] = (0, servers, servers + 1, 2 * servers + 1)
    own = np.where(workload.resource == WORKER, 0, workload.server)
    return (offset[workload.resource] + own).astype(np.int32)


def _local_ops(workload: Workload) -> npt.NDArray[np.bool_]:
    """Return which ops of the worker are waited for by ops of the worker only.

    None are, unless all that the worker's ops wait for are its own ops and downlinks, and downlinks
    wait for nothing: then nobody but a downlink under way can bring the worker something to do.
    """
    own, down = workload.resource == WORKER, workload.resource == DOWNLINK
    maker = np.repeat(np.arange(workload.ops), np.diff(workload.first_dependent))
    to_own = own[workload.dependents]
    if not (own | down)[maker[to_own]].all() or workload.waits[down].any():
        return np.zeros(workload.ops, bool)
    local: npt.NDArray[np.bool_] = own & (np.diff(workload.first_dependent) > 0)
    local[maker[~to_own]] = False
    return local


def write_plan(workload: Workload, system: System, drawn: Ints, most_chunks: int) -> Plan:
    """Return the arrays of a simulation that has not begun.

    Args:
        workload, system, drawn: as in `simulate`.
        most_chunks: for how many chunks there is room.
    """
    workers, ops, servers = system.workers, workload.ops, system.servers
    lanes = 3 * servers + 1
    transfers = int(np.isin(workload.resource, (DOWNLINK, UPLINK)).sum())
    lane_states = np.zeros(workers * lanes, LANE)
    for name in ("head", "tail", "op", "next"):
        lane_states[name] = NOBODY
    ports = np.zeros(2 * servers, PORT)
    with np.errstate(divide="ignore"):
        ports["period"] = 1 / np.concatenate([system.server_down, system.server_up])
        worker_ports = np.zeros(2 * workers, PORT)
        worker_ports["period"] = 1 / np.concatenate([system.worker_down, system.worker_up])
    ports["next"] = np.inf
    ports["first"] = np.arange(2 * servers) * workers
    simple = [
        bool((own >= theirs.sum()).all()) and bool(np.isfinite(theirs).all() or servers == 1)
        for theirs, own in (
            (system.server_down, system.worker_down),
            (system.server_up, system.worker_up),
        )
    ]
    core_states = np.zeros(servers, CORE)
    core_states["free"] = system.cores
    core_states["head"] = core_states["tail"] = NOBODY
    stages = np.zeros(workers, STAGE)
    # At once at most: a chunk of every computing lane, every delay, every root, the next step.
    most = lanes + 1 + transfers + workload.roots.shape[1]
    heap = np.zeros(workers * most, EVENT)
    order = np.lexsort((np.arange(workers), system.start))
    heap["key"][:workers] = system.start[order]
    heap["item"][:workers] = order.astype(np.int64) << SHIFT
    counts = np.zeros(6, np.int64)
    counts[EVENTS] = workers
    room = workers * servers
    return Plan(
        lane=lanes_of_ops(workload, servers),
        size=np.ascontiguousarray(workload.size, float),
        seconds=np.ascontiguousarray(workload.seconds, float),
        waits=workload.waits.astype(np.int32),
        first_dependent=workload.first_dependent.astype(np.int64),
        dependents=workload.dependents.astype(np.int32),
        is_local=_local_ops(workload) & (most_chunks == 0),
        roots=np.ascontiguousarray(workload.roots, np.int32),
        release=np.ascontiguousarray(workload.release, float),
        gap=np.asarray(workload.gap, float),
        drawn=np.ascontiguousarray(drawn, np.int64),
        servers=servers,
        lanes=lanes,
        window=float(system.window),
        ordered=system.priority is not None,
        priority=np.zeros(ops) if system.priority is None else np.asarray(system.priority, float),
        speed=np.asarray(system.speed, float),
        latency=np.asarray(system.latency, float),
        cores=system.cores,
        backup=NOBODY if system.backup is None else system.backup,
        background_times=np.asarray(system.background_times, float),
        background=np.stack([system.background_down, system.background_up]).astype(np.int64),
        weighted=system.weight is not None,
        weight=np.ones((1, 1)) if system.weight is None else np.asarray(system.weight, float),
        is_simple=np.array(simple, np.int64),
        clock=np.zeros(1),
        counts=counts,
        heap=heap,
        lane_states=lane_states,
        tasks=np.zeros(workers * ops, TASK),
        stages=stages,
        ports=ports,
        port_heap=np.zeros(2 * room, EVENT),
        worker_ports=worker_ports,
        flows=np.zeros(2 * room, FLOW),
        flow_counts=np.zeros(2, np.int64),
        flow_since=np.zeros(2),
        flow_next=np.full(2, np.inf),
        core_states=core_states,
        step_begin=np.full(drawn.shape, np.nan),
        step_end=np.full(drawn.shape, np.nan),
        accepted=np.full(drawn.shape, system.backup is None),
        chunks=np.zeros(most_chunks, CHUNK),
    )
