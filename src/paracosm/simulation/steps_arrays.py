"""A workload and a system as the arrays that the compiled loop works on: whole picoseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.network.compiled import LAST_INSTANT, Traffic, make_traffic
from paracosm.simulation.system import System, Ways
from paracosm.simulation.workload import DOWNLINK, SERVER, UPLINK, WORKER, Workload

__all__ = [
    "BACKGROUND",
    "CHUNK",
    "CHUNKS",
    "CLOCK",
    "DELAYS",
    "EVENTS",
    "FLOWS",
    "ITERATION",
    "NEVER",
    "NOBODY",
    "READY_STEPS",
    "SHIFT",
    "Plan",
    "lanes_of_ops",
    "way_records",
    "write_plan",
]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

EVENTS, CHUNKS, DELAYS, BACKGROUND, ITERATION, READY_STEPS, CLOCK, FLOWS = range(8)
"""In `Plan.counts`: size of the heap, chunks written, delays so far, changes of the background, the
iteration that is under way, how many steps were accepted for it, the instant, and how many
transfers are in the network."""

NEVER = -1
"""The instant of what has not happened."""

NOBODY = -1

SHIFT = 32
"""An item of the heap is worker << SHIFT | lane + 1, so that ties are in the order of workers."""

EVENT = np.dtype([("key", "i8"), ("item", "i8"), ("op", "i8")])
LANE = np.dtype(
    [
        ("head", "i8"),
        ("tail", "i8"),
        ("op", "i8"),
        ("begin", "i8"),
        ("turn", "i8"),
        ("next", "i8"),
        ("flow", "i8"),
    ]
)
"""Ops that wait (first and last); the one that runs, since when, in which turn; the `next` worker
that waits for a core; the transfer in the network, `NOBODY` for one that asks it for nothing."""

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

WAY = np.dtype(
    [("route", "i8"), ("factor", "f8"), ("held", "f8"), ("is_flow", "i8"), ("latency", "i8")]
)
"""A way from or to a server: its route in the network, what a byte and what a message beside its
bytes asks for there, whether that is bytes and not picoseconds; picoseconds after it."""

CORE = np.dtype([("free", "i8"), ("head", "i8"), ("tail", "i8")])
"""Cores of a server: how many are free, first and last worker that waits for one."""


CHUNK = np.dtype(
    [
        ("worker", np.int32),
        ("step", np.int32),
        ("op", np.int32),
        ("turn", np.int32),
        ("begin", np.int64),
        ("end", np.int64),
    ]
)
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
    background_times: Ints
    background: Floats
    ports: Ints
    weighted: bool
    weight: Floats
    ways: Any
    # the state
    traffic: Traffic
    counts: Ints
    heap: Any
    lane_states: Any
    tasks: Any
    stages: Any
    core_states: Any
    # the result
    step_begin: Ints
    step_end: Ints
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
    counts = np.zeros(8, np.int64)
    counts[EVENTS] = workers
    ways = system.ways
    has_background = bool(system.background_times.size)
    traffic = make_traffic(
        ways.sharing,
        ways.stations(),
        ways.capacity.tolist(),
        [1] * (2 * workers * servers),
        ways.ports.ravel().tolist() if has_background else (),
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
        background_times=_picoseconds(system.background_times),
        background=np.stack([system.background_down, system.background_up]).astype(float),
        ports=np.ascontiguousarray(ways.ports),
        weighted=system.weight is not None,
        weight=np.ones((1, 1)) if system.weight is None else np.asarray(system.weight, float),
        ways=way_records(ways),
        traffic=traffic,
        counts=counts,
        heap=heap,
        lane_states=lane_states,
        tasks=np.zeros(workers * ops, TASK),
        stages=stages,
        core_states=core_states,
        step_begin=np.full(drawn.shape, NEVER, np.int64),
        step_end=np.full(drawn.shape, NEVER, np.int64),
        accepted=np.full(drawn.shape, system.backup is None),
        chunks=np.zeros(most_chunks, CHUNK),
    )


def way_records(ways: Ways) -> Any:
    """Return the records of all ways, by direction, worker and server.

    A fair transfer asks for bytes; a serial one, or one that passes no station with a limit, for
    the picoseconds that it takes.
    """
    limit = np.append(ways.capacity, np.inf)[ways.routes].min(axis=-1, initial=np.inf)
    flows = (ways.sharing == "fair") & np.isfinite(limit)
    with np.errstate(invalid="ignore"):
        held = np.where(flows, ways.held * ways.bandwidth, ways.held * 1e12)
    records: Any = np.zeros(flows.size, WAY)
    records["route"] = np.arange(flows.size)
    records["factor"] = np.where(flows, 1.0, 1e12 / ways.bandwidth).ravel()
    records["held"] = held.ravel()
    records["is_flow"] = flows.ravel()
    records["latency"] = _picoseconds(ways.latency).ravel()
    return records


def _picoseconds(seconds: Floats) -> Ints:
    """Return whole picoseconds; what is beyond the clock is at its end."""
    most = float(LAST_INSTANT // 2)
    return np.ascontiguousarray(np.rint(np.minimum(np.asarray(seconds) * 1e12, most)), np.int64)
