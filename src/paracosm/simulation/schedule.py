"""Schedules: who reads and updates which tensor, and when, whatever the values are.

Where durations are modelled, time does not depend on values. A schedule is then made without
computing anything (`generate_schedule`), millions of steps in seconds; numerics can be done over
it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.cluster import Cluster
from paracosm.errors import InputError
from paracosm.network.compiled import make_traffic
from paracosm.network.compiled_serial import under_way
from paracosm.simulation import schedule_kernel as kernel
from paracosm.simulation.schedule_kernel import READ, STEP, UPDATE
from paracosm.simulation.simulate import Simulated
from paracosm.simulation.steps_kernel import way_records
from paracosm.simulation.system import DOWNLINK, SERVER, Ways, Workload, cluster_ways

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

BusyTimes = dict[str, dict[str, float]]
"""Seconds by node and resource: "compute", "send", "receive"."""

FEWEST_AHEAD = 16


class Rule(NamedTuple):
    """When gathered gradients become an update, and when a worker goes on; no values needed."""

    pushes: int = 1  # how many gradients make an update
    # whom a server answers: every push at once; all workers after an update; those whose gradients
    # went into it
    answers: Literal["each", "all", "gathered"] = "each"
    # whether a gradient is dropped if its tensor was updated since it was read
    drops_late: bool = False
    # how many gradients a worker may be ahead of the slowest one; None: as many as it can
    slack: int | None = None


def asgd() -> Rule:
    """Asynchronous SGD: every gradient is an update."""
    return Rule()


def ssgd(workers: int) -> Rule:
    """Synchronous SGD: an update for a gradient of every worker."""
    return Rule(workers, "all")


def ssp(slack: int) -> Rule:
    """Stale synchronous parallel: nobody is more than `slack` gradients ahead of the slowest."""
    return Rule(slack=slack)


def softsync(workers: int, n: int) -> Rule:
    """n-softsync: an update for every W / n gradients; nobody waits for it."""
    return Rule(workers // n)


def fedbuff(k: int) -> Rule:
    """Buffered asynchronous aggregation: an update for every k gradients; nobody waits for it."""
    return Rule(k)


def backup(workers: int, b: int) -> Rule:
    """Synchronous SGD with b backup workers: the first W - b gradients count, late ones do not."""
    return Rule(workers - b, "gathered", drops_late=True)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Reads, updates and steps. Times are whole picoseconds; all else counts from 0."""

    # time, worker, step, tensor, version: as of which the tensor was read for a step (with no
    # entry: version 0, as it is at the start), in the order of time
    reads: Rows
    # time, worker, step, tensor, version, read: gradients that were applied; the tensor's version
    # after it, and the one that the gradient was computed from
    updates: Rows
    # worker, step, begin, end, accepted: from the begin of computing until the tensors for the next
    # step are there; whether some gradient of it was taken. Steps that the end interrupted are not
    # there.
    steps: Rows
    end: int  # when the answers to the last updates had arrived
    dropped: int  # gradients that came too late
    busy: BusyTimes  # seconds for which each node computed, sent and received until then

    @property
    def staleness(self) -> Ints:
        """Updates of its tensor between the read of each gradient and its own update."""
        between: Ints = self.updates["version"].astype(np.int64) - 1 - self.updates["read"]
        return between

    def write(self, path: Path) -> None:
        """Write reads, updates and steps to a Parquet file: one long table, by "what"."""
        import pyarrow
        import pyarrow.parquet

        tables = []
        for what in ("reads", "updates", "steps"):
            rows = getattr(self, what)
            columns: dict[str, Any] = {name: rows[name] for name in rows.dtype.names}
            columns["what"] = pyarrow.array([what] * len(rows), pyarrow.string())
            tables.append(pyarrow.table(columns))
        table = pyarrow.concat_tables(tables, promote_options="default")
        facts = {b"end": str(self.end).encode(), b"dropped": str(self.dropped).encode()}
        pyarrow.parquet.write_table(table.replace_schema_metadata(facts), path)


def read_schedule(path: Path) -> Schedule:
    """Return a schedule that `Schedule.write` has written; without busy times."""
    import pyarrow.compute
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    facts = table.schema.metadata
    found: list[Rows] = []
    for what, dtype in (("reads", READ), ("updates", UPDATE), ("steps", STEP)):
        own = table.filter(pyarrow.compute.equal(table["what"], what))
        rows = np.zeros(len(own), dtype)
        for name in dtype.names or ():
            rows[name] = own[name].to_numpy()
        found.append(rows)
    reads, updates, steps = found
    return Schedule(reads, updates, steps, int(facts[b"end"]), int(facts[b"dropped"]), {})


def generate_schedule(
    cluster: Cluster,
    rule: Rule,
    sizes: Sequence[float],
    updates: int,
    compute_times: Sequence[Iterator[float]],
) -> Schedule:
    """Play the schedule of `updates` updates of every tensor, each on a server of its own.

    Args:
        cluster: workers and as many servers as tensors.
        rule: when gradients become an update, and whom a server answers.
        sizes: bytes of each tensor's messages, either way.
        updates: how many there are to be.
        compute_times: seconds of each worker's steps, without end.

    Raises:
        InputError: nothing joins a worker and a server; virtual time passes 106 days; the rule
            needs more gradients for an update than there will ever be.
    """
    workers = len(cluster.workers)
    ways = cluster_ways(cluster)
    ahead = max(FEWEST_AHEAD, updates * rule.pushes // workers * 9 // 8)
    durations = np.stack([_take(ahead, source) for source in compute_times])
    plan = _plan(cluster, ways, rule, sizes, updates, durations)
    _begin(plan)
    while (reason := kernel.play_schedule(plan)) != kernel.ENDED:
        if reason == kernel.DURATIONS:
            hungry = plan.counts[kernel.HUNGRY]
            durations[hungry] = _take(ahead, compute_times[hungry])
            plan.workers[hungry]["drawn"] = 0
        elif reason == kernel.ROOM:
            plan = plan._replace(read_rows=_twice(plan.read_rows), step_rows=_twice(plan.step_rows))
        else:
            raise InputError(
                "schedule: the workers wait for one another for ever, or for longer than 2**63 - 1 "
                "picoseconds (106 days): check the unit of durations"
            )
    counts, end = plan.counts, int(plan.counts[kernel.NOW])
    return Schedule(
        reads=plan.read_rows[: counts[kernel.READS]],
        updates=plan.update_rows[: counts[kernel.UPDATES]],
        steps=plan.step_rows[: counts[kernel.STEPS]],
        end=end,
        dropped=int(counts[kernel.DROPPED]),
        busy=_busy(plan, ways, cluster, end),
    )


def schedule_of_steps(workload: Workload, simulated: Simulated, tensor: Sequence[int]) -> Schedule:
    """Return the schedule of asynchronous steps that were simulated op by op, without busy times.

    A worker reads a tensor when its transfer from the server begins, and has updated it when the op
    that does so ends. A read that begins as an update ends sees it; updates that end together come
    in the order of workers.

    Args:
        workload: what a step consists of.
        simulated: with its chunks.
        tensor: by op, the tensor that it reads (a transfer from a server) or updates (an op on a
            server); -1 for all other ops.

    Raises:
        ValueError: a tensor is updated in a step that does not read it.
    """
    chunks, tensors = simulated.chunks, np.asarray(tensor)
    of, resource = tensors[chunks["op"]], workload.resource[chunks["op"]]
    is_update = (resource == SERVER) & (of >= 0)
    chosen = is_update | ((resource == DOWNLINK) & (of >= 0) & (chunks["turn"] == 0))
    chunks, of, is_update = chunks[chosen], of[chosen], is_update[chosen]
    time = np.rint(np.where(is_update, chunks["end"], chunks["begin"]) * 1e12).astype(np.int64)
    order = np.lexsort((chunks["worker"], ~is_update, time))
    chunks, of, is_update, time = chunks[order], of[order], is_update[order], time[order]
    version = np.zeros(len(time), np.int64)
    for each in np.unique(of):
        version[of == each] = np.cumsum(is_update[of == each])

    def rows(chosen: npt.NDArray[np.bool_], dtype: np.dtype[np.void]) -> Rows:
        found = np.zeros(int(chosen.sum()), dtype)
        found["time"], found["tensor"], found["version"] = time[chosen], of[chosen], version[chosen]
        found["worker"], found["step"] = chunks["worker"][chosen], chunks["step"][chosen]
        return found

    reads, updates = rows(~is_update, READ), rows(is_update, UPDATE)
    known = {
        (w, s, t): at for w, s, t, at in reads[["worker", "step", "tensor", "version"]].tolist()
    }
    try:
        updates["read"] = [known[key] for key in updates[["worker", "step", "tensor"]].tolist()]
    except KeyError as error:
        worker, step, own = error.args[0]
        raise ValueError(
            f"worker {worker} updates tensor {own} in step {step} without having read it"
        ) from None
    ended = np.argwhere(~np.isnan(simulated.step_end))
    steps = np.zeros(len(ended), STEP)
    steps["worker"], steps["step"] = ended.T
    for name, seconds in (("begin", simulated.step_begin), ("end", simulated.step_end)):
        steps[name] = np.rint(seconds[tuple(ended.T)] * 1e12)
    steps["accepted"] = simulated.accepted[tuple(ended.T)]
    return Schedule(reads, updates, steps, int(time.max(initial=0)), 0, {})


def _plan(
    cluster: Cluster, ways: Ways, rule: Rule, sizes: Sequence[float], updates: int, durations: Ints
) -> Any:
    """Return the arrays of a schedule that has not begun."""
    workers, tensors = len(cluster.workers), len(cluster.servers)
    routes = 2 * workers * tensors
    records = way_records(ways)
    size = np.tile(np.asarray(sizes, dtype=float), 2 * workers)
    demand = size * records["factor"] + records["held"]
    demand = np.where(records["is_flow"], demand, np.rint(demand))
    heap: Any = np.zeros(routes + workers, kernel.EVENT)
    answers = ("each", "all", "gathered").index(rule.answers)
    slack = kernel.NOBODY if rule.slack is None else min(rule.slack, updates)
    counts = np.zeros(9, np.int64)
    counts[kernel.HUNGRY] = kernel.NOBODY
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
        flows=ways.sharing != "serial",
        demand=demand,
        propagation=np.ascontiguousarray(records["latency"]),
        ports=np.ascontiguousarray(ways.routes[..., :2].reshape(routes, 2)),
        durations=durations,
        traffic=make_traffic(ways.sharing, ways.stations(), ways.capacity.tolist(), [1] * routes),
        counts=counts,
        heap=heap,
        workers=np.zeros(workers, kernel.WORKER),
        servers=np.zeros(tensors, kernel.SERVER),
        pairs=np.zeros(workers * tensors, kernel.PAIR),
        pushed=np.zeros(tensors * rule.pushes, kernel.PUSHED),
        held=np.zeros((tensors, workers if rule.slack is not None else 0), np.int64),
        standing=standing,
        stations=np.zeros(len(ways.names), kernel.STATION),
        read_rows=np.zeros(reads, kernel.READ),
        update_rows=np.zeros(pushes * tensors, kernel.UPDATE),
        step_rows=np.zeros(reads // tensors + workers, kernel.STEP),
    )


def _begin(plan: Any) -> None:
    """Let every worker begin its first step at time 0, in order."""
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


def _busy(plan: Any, ways: Ways, cluster: Cluster, end: int) -> BusyTimes:
    """Return for how many seconds every worker and server computed, sent and received.

    Of the pairs of ports in a hierarchical cluster, the busier one counts.
    """
    busy = plan.stations["busy"] + np.where(
        plan.stations["flows"] > 0, end - plan.stations["since"], 0
    )
    if not plan.flows:
        for route, began in under_way(plan.traffic):
            for port in plan.ports[route]:
                busy[port] += end - began if port >= 0 else 0
    by_port: dict[tuple[str, str], float] = {}
    for name, picoseconds in zip(ways.names, busy.tolist(), strict=True):
        node, _, way = name.rpartition(".")
        key = node.removesuffix(".outer"), way
        by_port[key] = max(by_port.get(key, 0.0), picoseconds / 1e12)
    computed = plan.workers["computed"] - np.maximum(0, plan.workers["until"] - end)
    found = dict.fromkeys(cluster.servers, 0.0)
    found |= dict(zip(cluster.workers, (computed / 1e12).tolist(), strict=True))
    return {
        name: {
            "compute": seconds,
            **{
                way: by_port.get((cluster.node(name).name, way), 0.0) for way in ("send", "receive")
            },
        }
        for name, seconds in found.items()
    }
