"""The compiled event loop: what ends at an instant, then what begins at it.

An instant is a time at which something ends. What happens at it, in rounds:

1. everything that ends then ends: it frees its resource, and those that waited for it and now wait
   for nothing more are ready. A task on no resource begins as soon as it is ready;
2. every resource that is free takes the task that comes first by its policy, among those that are
   ready: on one in order the next of all its tasks (or nobody), on one that is first in, first out
   the one that was ready first, on one by priority that with the smallest number; among equals, the
   first row. A collective's last task to arrive lets all of them begin;
3. what began and takes no time, and what awaited an end of this round, ends in a further round of
   the same instant.

Flows that end at an instant end in its first round. Those that begin at it share the links from its
last round on: rates change once an instant. (One with next to no bytes may end at it as well, in
one more round.) Within a round the outcome is the same in whatever order things are done, so that
ties need no further rule; where messages take turns, those of a round ask in the order of rows.
"""

from __future__ import annotations

from typing import Any

from paracosm.compiled import compiled_whole, inlined
from paracosm.network.compiled import LAST_INSTANT, next_end, pop_end, request, settle
from paracosm.network.heaps import place_item, place_task, pop_item, pop_task, replace_first
from paracosm.simulation.events_arrays import AWAITS, FIFO, FLOWS, IN_ORDER, MEETS, NEVER

__all__ = ["LATE", "OVER", "play"]

EVENTS, TOUCHED, READY, ARRIVING, ENDED, GAP, FLOWING, ASKING = range(8)  # in Plan.counts
NOBODY = -1
OVER, LATE = 0, 1
"""Why the loop ended: nothing is left that could happen; the clock has no room for what is."""


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
            _want(plan, plan.ready[index], now)
        counts[READY] = 0
        _choose(plan)
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
def _want(plan: Any, row: Any, now: Any) -> None:
    """Let a task that is ready stand in line for its resource; without one, it arrives."""
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
def _choose(plan: Any) -> None:
    """Let every touched resource that is free take its next task, if there is one."""
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
    """Let a task that has its resource begin, or wait for the others of its meeting."""
    task = plan.tasks[row]
    plan.arrive[row] = now
    if task.kind == MEETS:
        meeting = plan.meetings[task.partner]
        meeting.longest = max(meeting.longest, task.duration)
        meeting.missing -= 1
        if meeting.missing == 0:
            _schedule(plan, _later(now, meeting.longest), ~task.partner)
    else:
        plan.begin[row] = now
        if task.kind != AWAITS:
            _schedule(plan, _later(now, task.duration), row)
        elif plan.end[task.partner] != NEVER:
            _schedule(plan, max(now, _later(plan.end[task.partner], task.duration)), row)


@inlined
def _gather_flows(plan: Any, now: Any) -> None:
    """Write down the tasks whose last byte has come now."""
    row = pop_end(plan.traffic, now)
    while row != NOBODY:
        plan.ended[plan.counts[ENDED]] = row
        plan.counts[ENDED] += 1
        plan.counts[FLOWING] -= 1
        row = pop_end(plan.traffic, now)


@inlined
def _gather_events(plan: Any, now: Any) -> None:
    """Write down the tasks whose durations are over now; flows go on to their bytes."""
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
    """Let the bytes of a task flow."""
    plan.counts[FLOWING] += 1
    request(plan.traffic, plan.tasks[row].partner, row, plan.demand[row], now)


@inlined
def _end(plan: Any, row: Any, now: Any) -> None:
    """End a task: its resource is free, and those that waited for it have one less to wait for."""
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
            _schedule(plan, _later(now, tasks[~other].duration), ~other)


@inlined
def _schedule(plan: Any, time: Any, who: Any) -> None:
    """Add an event: in the gap that the last one left, if there is one, which costs half."""
    if plan.counts[GAP]:
        plan.counts[GAP] = 0
        replace_first(plan.events, 0, plan.counts[EVENTS], time, who)
    else:
        place_item(plan.events, 0, plan.counts[EVENTS], time, who)
        plan.counts[EVENTS] += 1


@inlined
def _close_gap(plan: Any) -> None:
    if plan.counts[GAP]:
        plan.counts[GAP] = 0
        pop_item(plan.events, 0, plan.counts[EVENTS], LAST_INSTANT)
        plan.counts[EVENTS] -= 1


@inlined
def _later(now: Any, duration: Any) -> Any:
    return now + min(duration, LAST_INSTANT - now)
