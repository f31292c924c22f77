"""How schedules come about: played without computing anything, millions of steps in seconds.

If durations are modelled, time does not depend on values, and numerics can follow: of workers that
compute as a whole, then push, then pull (`generate_schedule`), or of steps op by op
(`stream_schedule`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from paracosm.arrays import Ints
from paracosm.cluster import Cluster
from paracosm.compiled_references import Referenced
from paracosm.errors import InputError
from paracosm.network import Stations
from paracosm.network.compiled import make_traffic
from paracosm.network.compiled_serial import under_way
from paracosm.network.heaps import NOBODY
from paracosm.simulation import failures_kernel, versions_kernel
from paracosm.simulation import schedule_kernel as kernel
from paracosm.simulation.rules import ANSWERS, Rule, check_rule
from paracosm.simulation.schedule import READ, STEP, UPDATE, BusyTimes, Rows, Schedule
from paracosm.simulation.simulate import play_on
from paracosm.simulation.steps_kernel import FAULTY, OVER
from paracosm.simulation.steps_plan import CLOCK, Plan, route_records, write_plan
from paracosm.simulation.system import DOWNLINK, SERVER, Routes, System, Workload, cluster_routes
from paracosm.simulation.versions_kernel import Versions, make_versions

FEWEST_AHEAD = 16


def generate_schedule(
    cluster: Cluster,
    rule: Rule,
    sizes: Sequence[float],
    updates: int,
    compute_times: Sequence[Iterator[float]],
    pushed: Sequence[float] | None = None,
) -> Schedule:
    """Play the schedule of `updates` updates of every tensor, each on a server of its own.

    Args:
        cluster: workers and as many servers as tensors.
        rule: when gradients become an update, and whom a server answers.
        sizes: bytes of each tensor's messages, either way or, with `pushed`, to workers.
        updates: their number.
        compute_times: seconds of each worker's steps, without end.
        pushed: bytes of each tensor's messages to servers.

    Raises:
        InputError: nothing joins a worker and a server; virtual time passes 106 days; the rule is
            impossible, or for another number of workers.
    """
    workers = len(cluster.workers)
    check_rule(rule, workers)
    routes = cluster_routes(cluster)
    ahead = max(FEWEST_AHEAD, updates * rule.pushes // workers * 9 // 8)
    durations = np.stack([_take(ahead, source) for source in compute_times])
    names, ports = _ports(cluster)
    plan = _plan(cluster, routes, rule, (sizes, pushed or sizes), updates, durations, ports)
    _begin(plan)
    while (reason := kernel.play_schedule(Referenced(plan))) != kernel.ENDED:
        if reason == kernel.DURATIONS:
            hungry = plan.counts[kernel.HUNGRY]
            durations[hungry] = _take(ahead, compute_times[hungry])
            plan.workers[hungry]["drawn"] = 0
        elif reason == kernel.ROOM:
            plan = plan._replace(read_rows=_twice(plan.read_rows), step_rows=_twice(plan.step_rows))
        else:
            raise InputError(
                "schedule: virtual time passes 2**63 - 1 picoseconds (106 days), the range of the "
                "clock: check the unit of durations"
            )
    counts, end = plan.counts, int(plan.counts[kernel.NOW])
    return Schedule(
        reads=plan.read_rows[: counts[kernel.READS]],
        updates=plan.update_rows[: counts[kernel.UPDATES]],
        steps=plan.step_rows[: counts[kernel.STEPS]],
        end=end,
        dropped=int(counts[kernel.DROPPED]),
        busy=_busy(plan, names, cluster, end),
    )


def stream_schedule(
    workload: Workload,
    system: System,
    rule: Rule,
    drawn: Ints,
    tensor: Sequence[int],
    *,
    tensors: Sequence[str] = (),
    block: int = 65_536,
) -> Iterator[Schedule]:
    """Simulate steps op by op (Algorithm 3.1), and yield their schedule in consecutive blocks.

    A worker reads a tensor when it requests its transfer from the server, and the tensor is updated
    when the updating op ends. Within an instant updates come first, in the order of workers, so
    that a read that is requested as an update ends sees it.

    If a worker waits for others, it does so between two steps, before the gap: with a slack until
    the slowest worker has ended enough of them, synchronously until all have ended theirs, with
    backup workers until so many have. Late steps are dropped as a whole; who is late is known when
    a step ends, so that all tensors are updated then: with backup workers as the iteration ends,
    otherwise with the last of the gradients, of steps that have read no older tensor.

    If workers fail (`System.mtbf`), a failure loses the step under way and counts in no iteration
    and no slack; see `failures_kernel`. In a rule whose updates need every worker, two gradients of
    one step of a worker could meet in an update: such jobs have to stop together (`rollback`).

    Args:
        workload: what a step consists of.
        system: the cluster; whom workers wait for is defined by the rule alone.
        rule: when gathered gradients become an update, and when a worker continues.
        drawn: which step of the workload worker w's k-th step is, (workers, steps).
        tensor: by op, the tensor that it reads (a transfer from a server) or updates (an op on a
            server); -1 for all other ops.
        tensors: their names, in the order of their numbers.
        block: rows of each kind in a block at most, unless one instant has more.

    Yields:
        At least one block, each between two instants; times and versions count from the start.
        There are no busy times.

    Raises:
        InputError: virtual time passes 2**63 - 1 ps (106 days); the rule is impossible, or for
            another number of workers.
        ValueError: a step updates a tensor before it has read it, or by several ops; workers fail
            of which the rule needs every one; what `simulate` raises.
    """
    check_rule(rule, system.workers)
    # how many workers a step that is simulated op by op does not wait for
    backup = None if rule.answers == "each" else system.workers - rule.pushes
    if rule.needs_all and len(system.failure_keys):
        raise ValueError("a job whose updates need every worker stops when one fails")
    versions = _versions(workload, rule, system.workers, tensor, block)
    waiting = replace(system, backup=backup, slack=rule.slack)
    plan = write_plan(workload, waiting, drawn, versions=versions)
    ended = False
    while not ended:
        reason = play_on(plan, math.inf)
        if reason == FAULTY:
            unread = int(plan.versions.counts[versions_kernel.UNREAD])
            raise ValueError(f"a step updates tensor {unread} before it has read it")
        ended = reason == OVER
        dropped = int(plan.versions.counts[versions_kernel.DROPPED])
        plan, taken = _collect_rows(plan, ended)
        if ended or any(map(len, taken)):
            plan.versions.counts[versions_kernel.DROPPED] = 0
            end = int(plan.counts[CLOCK])
            reads, updates, steps, failed = taken
            yield Schedule(reads, updates, steps, end, dropped, {}, tuple(tensors), failed)


def _versions(
    workload: Workload, rule: Rule, workers: int, tensor: Sequence[int], room: int
) -> Versions:
    whose = np.asarray(tensor, np.int64)
    read = np.where(workload.resource == DOWNLINK, whose, -1)
    updated = np.where(workload.resource == SERVER, whose, -1)
    for what, versions in (("read", read), ("updated", updated)):
        if (twice := np.flatnonzero(np.bincount(versions[versions >= 0]) > 1)).size:
            raise ValueError(f"tensor {twice[0]} is {what} by several ops of a step")
    return make_versions(read, updated, workers, rule.pushes, rule.drops_late, room)


def _collect_rows(plan: Plan, ended: bool) -> tuple[Plan, list[Rows]]:
    """Return the continuing plan and the rows before this instant, or all of them."""
    versions, failures, now = plan.versions, plan.failures, plan.counts[CLOCK]
    logs = (
        (versions.counts, versions_kernel.READS, versions.read_rows, "time"),
        (versions.counts, versions_kernel.UPDATES, versions.update_rows, "time"),
        (versions.counts, versions_kernel.STEPS, versions.step_rows, "end"),
        (failures.counts, failures_kernel.ROWS, failures.rows, "time"),
    )
    taken: list[Rows] = []
    for counts, count, rows, time in logs:
        written = int(counts[count])
        final = written if ended else int(np.searchsorted(rows[time][:written], now))
        taken.append(rows[:final].copy())
        rows[: written - final] = rows[final:written]
        counts[count] -= final
    versions.counts[versions_kernel.SEEN] -= len(taken[0])
    versions.pairs["row"] -= len(taken[0])
    if not ended and not any(map(len, taken)):
        reads, updates, steps, failed = (_twice(rows) for _, _, rows, _ in logs)
        versions = versions._replace(read_rows=reads, update_rows=updates, step_rows=steps)
        failures = failures._replace(rows=failed)
    return plan._replace(versions=versions, failures=failures), taken


def _plan(
    cluster: Cluster,
    routes: Routes,
    rule: Rule,
    sizes: tuple[Sequence[float], Sequence[float]],  # of messages to workers, and to servers
    updates: int,
    durations: Ints,
    ports: Ints,  # at both ends of each route
) -> Any:
    workers, tensors = len(cluster.workers), len(cluster.servers)
    count = 2 * workers * tensors
    records = route_records(routes)
    # In the order of directions: `schedule_kernel.PULL`, PUSH
    size = np.repeat(np.asarray(sizes, dtype=float), workers, axis=0).ravel()
    demand = size * records["factor"] + records["held"]
    demand = np.where(records["is_flow"], demand, np.rint(demand))
    heap: Any = np.zeros(count + workers, kernel.EVENT)
    answers = ANSWERS.index(rule.answers)
    slack = NOBODY if rule.slack is None else min(rule.slack, updates)
    counts = np.zeros(9, np.int64)
    counts[kernel.HUNGRY] = NOBODY
    standing = np.zeros((tensors, 1 if rule.slack is None else slack + 3), np.int64)
    standing[:, 0] = workers
    pushes = updates * rule.pushes
    reads = (max(pushes, updates * workers if rule.answers == "all" else 0) + 2 * workers) * tensors
    return kernel.Plan(
        pushes=rule.pushes,
        answers=answers,
        drops_late=rule.drops_late,
        slack=slack,
        updates=updates,
        flows=routes.sharing != "serial",
        demand=demand,
        propagation=np.ascontiguousarray(records["latency"]),
        ports=ports,
        durations=durations,
        traffic=make_traffic(
            routes.sharing, routes.stations(), routes.capacity.tolist(), [1] * count
        ),
        counts=counts,
        heap=heap,
        workers=np.zeros(workers, kernel.WORKER),
        servers=np.zeros(tensors, kernel.SERVER),
        pairs=np.zeros(workers * tensors, kernel.PAIR),
        pushed=np.zeros(tensors * rule.pushes, kernel.PUSHED),
        held=np.zeros((tensors, workers if rule.slack is not None else 0), np.int64),
        standing=standing,
        stations=np.zeros(ports.max(initial=-1) + 1, kernel.STATION),
        read_rows=np.zeros(reads, READ),
        update_rows=np.zeros(pushes * tensors, UPDATE),
        step_rows=np.zeros(reads // tensors + workers, STEP),
    )


def _begin(plan: Any) -> None:
    """Begin every worker's first step at time 0, in order."""
    first = plan.durations[:, 0]
    plan.workers["drawn"], plan.workers["missing"] = 1, plan.servers.size
    plan.workers["until"] = plan.workers["computed"] = first
    order = np.argsort(first, kind="stable")
    events = plan.heap[: len(order)]
    events["key"], events["item"], events["op"] = first[order], order, order * plan.servers.size
    plan.counts[kernel.EVENTS] = plan.counts[kernel.TICK] = len(order)


def _take(count: int, source: Iterator[float]) -> Ints:
    seconds = np.fromiter(islice(source, count), np.float64, count)
    return np.rint(np.minimum(seconds * 1e12, 4.6e18)).astype(np.int64)


def _twice(rows: Rows) -> Rows:
    more = np.zeros(2 * len(rows), rows.dtype)
    more[: len(rows)] = rows
    return more


def _ports(cluster: Cluster) -> tuple[list[str], Ints]:
    """Return the names of all ports, and those at both ends of each route, (routes, 2).

    A message holds them for its overhead too, even where bytes take no time and share nothing.
    """
    stations = Stations(cluster)
    numbers: dict[str, int] = {}
    names = []
    pulls = [(server, worker) for worker in cluster.workers for server in cluster.servers]
    for source, target in (*pulls, *((worker, server) for server, worker in pulls)):
        outer = stations.leaves_group(source, target)
        for node, way in ((source, "send"), (target, "receive")):
            port = f"{stations.ports_of(cluster.node(node).name, outer)}.{way}"
            names.append(numbers.setdefault(port, len(numbers)))
    return list(numbers), np.array(names, np.int64).reshape(-1, 2)


def _busy(plan: Any, names: Sequence[str], cluster: Cluster, end: int) -> BusyTimes:
    """Return busy seconds of computing, sending and receiving; of port pairs the busier one."""
    busy = plan.stations["busy"] + np.where(
        plan.stations["flows"] > 0, end - plan.stations["since"], 0
    )
    if not plan.flows:
        for route, began in under_way(plan.traffic):
            for port in plan.ports[route]:
                busy[port] += end - began
    by_port: dict[str, float] = {
        port: picoseconds / 1e12 for port, picoseconds in zip(names, busy.tolist(), strict=True)
    }
    ports_of = Stations(cluster).ports_of

    def of_node(node: str, way: str) -> float:
        ports = (ports_of(node, outer) for outer in (False, True))
        return max(by_port.get(f"{port}.{way}", 0.0) for port in ports)

    computed = plan.workers["computed"] - np.maximum(0, plan.workers["until"] - end)
    found = dict.fromkeys(cluster.servers, 0.0)
    found |= dict(zip(cluster.workers, (computed / 1e12).tolist(), strict=True))
    return {
        name: {
            "compute": seconds,
            **{way: of_node(cluster.node(name).name, way) for way in ("send", "receive")},
        }
        for name, seconds in found.items()
    }
