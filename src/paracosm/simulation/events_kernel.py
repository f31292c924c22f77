"""The compiled event loop: what ends at an instant, then what begins at it.

An instant is a time at which something ends. What happens at it, in rounds:

1. everything that ends then ends: it frees its resource, and those that waited for nothing else
   are ready. A task on no resource begins as soon as it is ready;
2. every free resource takes the first of its ready tasks by its policy: in order, the next of all
   its tasks (or none); first in, first out, the one that was ready first; by priority, the one with
   the smallest number; among equals, the first row. When a collective's last task arrives, all of
   them begin;
3. what began and takes no time, and what awaited an end of this round, ends in a further round of
   the same instant.

Flows that end at an instant end in its first round. Those that begin at it share the links from its
last round on: rates change once per instant. (One with next to no bytes may end at it as well, in
one more round.) Within a round the outcome does not depend on the order of processing, so that ties
need no further rule; under serial sharing, the requests of a round are made in the order of rows.
"""

from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.compiled import columns, compiled, compiled_whole, inlined, shaped
from paracosm.jobs.job import POLICIES, TaskGraph
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.compiled import (
    Traffic,
    make_traffic,
    next_end,
    pop_end,
    request,
    settle,
)
from paracosm.network.heaps import (
    NEVER,
    NOBODY,
    later,
    place_item,
    place_task,
    pop_item,
    pop_task,
    replace_first,
)

PLAIN, MEETS, AWAITS, FLOWS = range(4)
"""What becomes of a task once it has its resource: it runs; it meets others; it waits for another
one's end; its bytes flow."""

IN_ORDER, FIFO, PRIORITY = (POLICIES.index(policy) for policy in ("in order", "fifo", "priority"))

TASK = np.dtype(
    [
        *columns("i8", "duration", "first", "key"),
        *columns("i4", "missing", "resource", "kind", "partner"),
    ]
)
"""A task: picoseconds; where those that wait for it begin in `Plan.after`; what it is ordered by
where its resource chooses; how many it still waits for; its meeting, the task that it awaits, or
its route."""

RESOURCE = np.dtype(
    [
        *columns("i8", "first", "head", "last"),
        ("policy", "i4"),
        *columns("i1", "is_busy", "is_touched"),
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
    """Everything that the loop reads and writes."""

    tasks: Any  # n + 1, the last for its `first`
    after: Codes  # tasks that depend on each; `~k`: k holds its resource and awaits the end
    resources: Any
    waiting: Codes  # of each resource, its tasks
    meetings: Any  # m + 1, the last for its `first`
    members: Codes  # of each meeting, its tasks
    events: Any  # a heap
    touched: Codes  # resources that may have something to choose
    ready: Codes  # that become so in one round of an instant
    arriving: Codes
    ended: Codes
    demand: Floats  # of tasks that flow: bytes, or picoseconds with serial sharing
    arrive: Ints  # instants of the tasks, `NEVER` before
    begin: Ints
    end: Ints
    traffic: Traffic
    asking: Any  # a heap of tasks that ask for their links in this round, where order matters
    # of what stands in `events`, `touched`, `ready`, `arriving`, `ended`; whether the first of
    # `events` is over (it leaves when the next one comes); of tasks that flow, and of what stands
    # in `asking`
    counts: Ints


def arrange(graph: TaskGraph) -> Plan:
    """Return the arrays for `graph` before the first instant."""
    n, resources = len(graph), len(graph.policy)
    route, traffic = _traffic(graph)
    meeting = _without_gaps(graph.meeting)
    of_resource, waiting = _group(graph.resource, resources)
    of_meeting, members = _group(meeting, int(meeting.max(initial=-1)) + 1)
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
    """Return the route of each task with bytes on a finite link (else -1), and the network."""
    first, route = graph.route_offsets, graph.route
    if graph.sharing != "serial":
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


@shaped("n+1: tasks offsets; n: resource duration priority meeting awaited route")
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
    """Write columns into records, in the initial state."""
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


@shaped("n+1: tasks offsets; n: awaited")
@compiled
def _fill_after(tasks: Any, after: Any, offsets: Any, dependencies: Any, awaited: Any) -> None:
    """Fill the successors by a counting sort; `~row` marks the second of two reasons."""
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
    """Return the numbers, dense if they are large and sparse; -1 stays."""
    if number.max(initial=-1) < len(number):
        return number
    _, place = np.unique(np.append(number, -1), return_inverse=True)
    return (place[:-1] - 1).astype(np.int32)


@compiled
def _group(number: Any, groups: Any) -> Any:
    """Return CSR of the rows with each number, ascending: a counting sort; -1 is in no group."""
    first = np.zeros(groups + 1, dtype=np.int64)
    for row in range(number.size):
        if number[row] >= 0:
            first[number[row]] += 1
    for one in range(groups):
        first[one + 1] += first[one]
    rows = np.empty(first[groups], dtype=np.int32)
    for row in range(number.size - 1, -1, -1):
        if number[row] >= 0:
            first[number[row]] -= 1
            rows[first[number[row]]] = row
    return first, rows


EVENTS, TOUCHED, READY, ARRIVING, ENDED, GAP, FLOWING, ASKING = range(8)  # in Plan.counts
OVER, LATE = 0, 1
"""Why the loop ended: nothing is left that could happen; the clock has no room for what is."""


@shaped("n+1: tasks; n: arrive begin end")
@compiled_whole
def play(plan: Any) -> Any:
    """Fill `arrive`, `begin` and `end` of all tasks that can run; return `OVER` or `LATE`."""
    tasks, events, traffic, counts = plan.tasks, plan.events, plan.traffic, plan.counts
    now = 0
    for row in range(tasks.size - 1):
        if tasks[row].missing == 0:
            plan.ready[counts[READY]] = row
            counts[READY] += 1
    while True:
        for index in range(counts[READY]):
            _queue_task(plan, plan.ready[index], now)
        counts[READY] = 0
        _start_queued(plan)
        for index in range(counts[ARRIVING]):
            _arrive(plan, plan.arriving[index], now)
        counts[ARRIVING] = 0
        _close_gap(plan)
        if counts[EVENTS] == 0 or events[0].key != now:
            settle(traffic, now)
            now = next_end(traffic)
            if counts[EVENTS] > 0:
                now = min(now, events[0].key)
            elif counts[FLOWING] == 0:
                return OVER
            if now == LAST_INSTANT:
                return LATE
            _gather_flows(plan, now)
        _gather_events(plan, now)
        for index in range(counts[ENDED]):
            _end(plan, plan.ended[index], now)
        counts[ENDED] = 0


@inlined
def _queue_task(plan: Any, row: Any, now: Any) -> None:
    """Enqueue a ready task for its resource; without one, it arrives."""
    task = plan.tasks[row]
    if task.resource < 0:
        plan.arriving[plan.counts[ARRIVING]] = row
        plan.counts[ARRIVING] += 1
    else:
        resource = plan.resources[task.resource]
        if resource.policy != IN_ORDER:
            if resource.policy == FIFO:
                task.key = now
            size = resource.last - resource.first
            place_task(plan.waiting, plan.tasks, resource.first, size, row)
            resource.last += 1
        if not resource.is_touched:
            resource.is_touched = 1
            plan.touched[plan.counts[TOUCHED]] = task.resource
            plan.counts[TOUCHED] += 1


@inlined
def _start_queued(plan: Any) -> None:
    """Give every touched resource that is free its next task, if there is one."""
    counts = plan.counts
    for index in range(counts[TOUCHED]):
        resource = plan.resources[plan.touched[index]]
        resource.is_touched = 0
        if not resource.is_busy and resource.head < resource.last:
            row = plan.waiting[resource.head]
            chosen = plan.tasks[row].missing == 0
            if resource.policy != IN_ORDER:
                size = resource.last - resource.first
                pop_task(plan.waiting, plan.tasks, resource.first, size)
                resource.last -= 1
            elif chosen:
                resource.head += 1
            if chosen:
                resource.is_busy = 1
                plan.arriving[counts[ARRIVING]] = row
                counts[ARRIVING] += 1
    counts[TOUCHED] = 0


@inlined
def _arrive(plan: Any, row: Any, now: Any) -> None:
    """Begin a task that has its resource, or make it wait for the others of its meeting."""
    task = plan.tasks[row]
    plan.arrive[row] = now
    if task.kind == MEETS:
        meeting = plan.meetings[task.partner]
        meeting.longest = max(meeting.longest, task.duration)
        meeting.missing -= 1
        if meeting.missing == 0:
            _schedule(plan, later(now, meeting.longest), ~task.partner)
    else:
        plan.begin[row] = now
        if task.kind != AWAITS:
            _schedule(plan, later(now, task.duration), row)
        elif plan.end[task.partner] != NEVER:
            _schedule(plan, max(now, later(plan.end[task.partner], task.duration)), row)


@inlined
def _gather_flows(plan: Any, now: Any) -> None:
    """Collect the tasks whose last byte has arrived now."""
    row = pop_end(plan.traffic, now)
    while row != NOBODY:
        plan.ended[plan.counts[ENDED]] = row
        plan.counts[ENDED] += 1
        plan.counts[FLOWING] -= 1
        row = pop_end(plan.traffic, now)


@inlined
def _gather_events(plan: Any, now: Any) -> None:
    """Collect the tasks whose durations are over now; flows continue with their bytes."""
    events, counts = plan.events, plan.counts
    while counts[EVENTS] > 0 and events[0].key == now:
        who = events[0].item
        counts[GAP] = 1
        if who < 0:
            began = now - plan.meetings[~who].longest
            for place in range(plan.meetings[~who].first, plan.meetings[~who + 1].first):
                plan.begin[plan.members[place]] = began
                plan.ended[counts[ENDED]] = plan.members[place]
                counts[ENDED] += 1
        elif plan.tasks[who].kind == FLOWS:
            if plan.asking.size == 0:
                _request(plan, who, now)
            else:
                place_item(plan.asking, 0, counts[ASKING], who, who)
                counts[ASKING] += 1
        else:
            plan.ended[counts[ENDED]] = who
            counts[ENDED] += 1
        if counts[EVENTS] < 3 or min(events[1].key, events[2].key) == now:
            _close_gap(plan)
        else:
            break
    while counts[ASKING] > 0:
        who = plan.asking[0].item
        pop_item(plan.asking, 0, counts[ASKING], LAST_INSTANT)
        counts[ASKING] -= 1
        _request(plan, who, now)


@inlined
def _request(plan: Any, row: Any, now: Any) -> None:
    """Start the transfer of a task's bytes."""
    plan.counts[FLOWING] += 1
    request(plan.traffic, plan.tasks[row].partner, row, plan.demand[row], now)


@inlined
def _end(plan: Any, row: Any, now: Any) -> None:
    """End a task: free its resource, and notify those that waited for it."""
    tasks, counts = plan.tasks, plan.counts
    plan.end[row] = now
    number = tasks[row].resource
    if number >= 0:
        resource = plan.resources[number]
        resource.is_busy = 0
        if not resource.is_touched:
            resource.is_touched = 1
            plan.touched[counts[TOUCHED]] = number
            counts[TOUCHED] += 1
    for edge in range(tasks[row].first, tasks[row + 1].first):
        other = plan.after[edge]
        if other >= 0:
            tasks[other].missing -= 1
            if tasks[other].missing == 0:
                plan.ready[counts[READY]] = other
                counts[READY] += 1
        elif plan.arrive[~other] != NEVER:
            _schedule(plan, later(now, tasks[~other].duration), ~other)


@inlined
def _schedule(plan: Any, time: Any, who: Any) -> None:
    """Add an event, at half the cost if it fills the gap that the last one left."""
    if plan.counts[GAP]:
        plan.counts[GAP] = 0
        replace_first(plan.events, plan.counts[EVENTS], time, who)
    else:
        place_item(plan.events, 0, plan.counts[EVENTS], time, who)
        plan.counts[EVENTS] += 1


@inlined
def _close_gap(plan: Any) -> None:
    if plan.counts[GAP]:
        plan.counts[GAP] = 0
        pop_item(plan.events, 0, plan.counts[EVENTS], LAST_INSTANT)
        plan.counts[EVENTS] -= 1
