"""What the compiled event loop works on: records in arrays.

What belongs to one task is in one record, so that it comes from memory at once; and the fewer
arrays a compiled function is given, the faster it compiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.jobs import TaskGraph
from paracosm.jobs.job import POLICIES
from paracosm.network.compiled import Traffic, make_traffic
from paracosm.simulation.events_index import group

__all__ = [
    "AWAITS",
    "FIFO",
    "FLOWS",
    "IN_ORDER",
    "MEETS",
    "NEVER",
    "PLAIN",
    "Plan",
    "arrange",
]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

PLAIN, MEETS, AWAITS, FLOWS = range(4)
"""What becomes of a task once it has its resource: it runs; it meets others; it waits for another
one's end; its bytes flow."""

IN_ORDER, FIFO, PRIORITY = (POLICIES.index(policy) for policy in ("in order", "fifo", "priority"))

NEVER = -1
"""The instant of what has not happened."""


TASK = np.dtype(
    [
        ("duration", "i8"),
        ("first", "i8"),
        ("key", "i8"),
        ("missing", "i4"),
        ("resource", "i4"),
        ("kind", "i4"),
        ("partner", "i4"),
    ]
)
"""A task: picoseconds; where those that wait for it begin in `Plan.after`; what it is ordered by
where its resource chooses; how many it still waits for; its meeting, the task that it awaits, or
its route."""

RESOURCE = np.dtype(
    [
        ("first", "i8"),
        ("head", "i8"),
        ("last", "i8"),
        ("policy", "i4"),
        ("is_busy", "i1"),
        ("is_touched", "i1"),
    ],
    align=True,
)
"""An exclusive resource. In order, `Plan.waiting[head:last]` are its tasks that are still to come;
else `waiting[first:last]` is a heap by (key, task) of those that are ready."""

MEETING = np.dtype([("first", "i8"), ("longest", "i8"), ("missing", "i8")])
"""A collective: where its tasks begin in `Plan.members`; the longest duration; who is missing."""

EVENT = np.dtype([("key", "i8"), ("item", "i8")])
"""An instant at which the duration of a task is over, or of meeting m (`~m`)."""


class Plan(NamedTuple):
    """Everything that the loop reads and writes.

    Attributes:
        tasks: n, and one more for its `first`.
        after: of each task, the tasks that depend on it; the complement `~k` stands for a task k
            that holds its resource and awaits the end.
        resources: r.
        waiting: of each resource, its tasks.
        meetings: m, and one more for its `first`.
        members: of each meeting, its tasks.
        events: a heap.
        touched: resources that may have something to choose.
        ready, arriving, ended: the tasks that become ready, get their resources, and end in one
            round of an instant.
        demand: of the tasks that flow: bytes, or picoseconds with serial sharing.
        arrive, begin, end: instants of the tasks, `NEVER` before.
        traffic: what flows.
        asking: a heap of tasks that ask for their links in this round, where order matters.
        counts: of what stands in `events`, `touched`, `ready`, `arriving`, `ended`; whether the
            first of `events` is over (it leaves when the next one comes); of tasks that flow, and
            of what stands in `asking`.
    """

    tasks: Any
    after: Codes
    resources: Any
    waiting: Codes
    meetings: Any
    members: Codes
    events: Any
    touched: Codes
    ready: Codes
    arriving: Codes
    ended: Codes
    demand: Floats
    arrive: Ints
    begin: Ints
    end: Ints
    traffic: Traffic
    asking: Any
    counts: Ints


def arrange(graph: TaskGraph) -> Plan:
    """Return the arrays for `graph` as they are before the first instant."""
    n, resources = len(graph), len(graph.policy)
    route, traffic = _traffic(graph)
    meeting = _without_gaps(graph.meeting)
    of_resource, waiting = group(graph.resource, resources)
    of_meeting, members = group(meeting, int(meeting.max(initial=-1)) + 1)
    tasks = np.empty(n + 1, dtype=TASK)
    after = np.empty(len(graph.dependencies) + int((graph.awaited >= 0).sum()), dtype=np.int32)
    _fill_tasks(
        *(tasks, graph.resource, graph.duration, graph.priority, graph.offsets),
        *(meeting, graph.awaited, route, np.append(graph.policy, FIFO) == PRIORITY),
    )
    _fill_after(tasks, after, graph.offsets, graph.dependencies, graph.awaited)
    arrive, begin, end = (np.full(n, NEVER, dtype=np.int64) for _ in range(3))
    alone = int(np.count_nonzero(graph.resource < 0))
    room = min(n, resources + alone) + 1  # a resource has one event at a time
    return Plan(
        tasks=tasks,
        after=after,
        resources=_resources(graph.policy, of_resource),
        waiting=waiting,
        meetings=_meetings(of_meeting),
        members=members,
        events=np.empty(room, dtype=EVENT),
        touched=np.empty(resources, dtype=np.int32),
        ready=np.empty(n, dtype=np.int32),
        arriving=np.empty(n, dtype=np.int32),
        ended=np.empty(n, dtype=np.int32),
        demand=graph.demand,
        arrive=arrive,
        begin=begin,
        end=end,
        traffic=traffic,
        asking=np.empty(0 if graph.sharing == "fair" else n, dtype=EVENT),
        counts=np.zeros(8, dtype=np.int64),
    )


def _traffic(graph: TaskGraph) -> tuple[Codes, Traffic]:
    """Return the route of each task that flows, -1 of others, and the network with no flow yet.

    A task that has no bytes, or only links of infinite bandwidth, flows over none; with serial
    sharing it holds its links all the same.
    """
    first, route = graph.route_offsets, graph.route
    if graph.sharing == "fair":
        finite = np.append(0, np.cumsum(np.isfinite(graph.bandwidth[graph.routes])))
        limited = np.append(finite[first[1:]] > finite[first[:-1]], False)
        flows = (route >= 0) & (graph.demand > 0) & limited[route]
    else:
        flows = (route >= 0) & np.append(np.diff(first) > 0, False)[route]
    route = np.where(flows, route, -1).astype(np.int32)
    room = np.bincount(route[flows], minlength=len(first) - 1)
    used = [graph.routes[first[at] : first[at + 1]].tolist() for at in np.flatnonzero(room)]
    number = np.append(np.cumsum(room > 0) - 1, -1).astype(np.int32)
    traffic = make_traffic(graph.sharing, used, graph.bandwidth.tolist(), room[room > 0].tolist())
    return number[route], traffic


@compiled
def _fill_tasks(
    tasks: Any,
    resource: Any,
    duration: Any,
    priority: Any,
    offsets: Any,
    meeting: Any,
    awaited: Any,
    route: Any,
    by_priority: Any,
) -> None:
    """Write columns into records; nothing has happened yet."""
    for row in range(duration.size):
        task = tasks[row]
        task.duration = duration[row]
        task.first = 0
        task.key = priority[row] if by_priority[resource[row]] else 0
        task.missing = offsets[row + 1] - offsets[row]
        task.resource = resource[row]
        task.kind, task.partner = PLAIN, -1
        if meeting[row] >= 0:
            task.kind, task.partner = MEETS, meeting[row]
        elif awaited[row] >= 0:
            task.kind, task.partner = AWAITS, awaited[row]
        elif route[row] >= 0:
            task.kind, task.partner = FLOWS, route[row]
    tasks[duration.size].first = 0


@compiled
def _fill_after(tasks: Any, after: Any, offsets: Any, dependencies: Any, awaited: Any) -> None:
    """Write down who waits for whom: a counting sort, from behind.

    Of one row that both depends on a task and awaits it, `~row` stands first.
    """
    for edge in range(dependencies.size):
        tasks[dependencies[edge]].first += 1
    for row in range(awaited.size):
        if awaited[row] >= 0:
            tasks[awaited[row]].first += 1
    edges = 0
    for row in range(tasks.size):
        edges += tasks[row].first
        tasks[row].first = edges
    for row in range(awaited.size - 1, -1, -1):
        for edge in range(offsets[row], offsets[row + 1]):
            before = tasks[dependencies[edge]]
            before.first -= 1
            after[before.first] = row
        if awaited[row] >= 0:
            before = tasks[awaited[row]]
            before.first -= 1
            after[before.first] = ~row


def _resources(policy: Codes, first: Ints) -> Any:
    resources = np.zeros(len(policy), dtype=RESOURCE)
    resources["policy"] = policy
    resources["first"] = resources["head"] = first[:-1]
    resources["last"] = np.where(policy == IN_ORDER, first[1:], first[:-1])
    return resources


def _meetings(first: Ints) -> Any:
    meetings = np.zeros(len(first), dtype=MEETING)
    meetings["first"] = first
    meetings["missing"][:-1] = np.diff(first)
    return meetings


def _without_gaps(number: Codes) -> Codes:
    """Return the numbers, or where they are so large that many are missing, their places in order.

    -1 stays.
    """
    if number.max(initial=-1) < len(number):
        return number
    _, place = np.unique(np.append(number, -1), return_inverse=True)
    return (place[:-1] - 1).astype(np.int32)
