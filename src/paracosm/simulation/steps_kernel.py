"""The compiled loop: Algorithm 3.1 of Li et al. (2020), event by event.

An event is a step that begins, a chunk that ends, or a transfer whose delay is over. The ops that
it enables are put in the schedulers of their lanes first; then every idle lane takes the best of
those that wait. Events of one instant are ordered by worker, then by lane; transfers that begin or
end at it change the rates of others at its end.
"""

from typing import Any

import numpy as np

from paracosm.compiled import compiled_whole, inlined
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.compiled import (
    change_background,
    earliest_end,
    next_end,
    pop_end,
    request,
    settle,
)
from paracosm.network.heaps import NOBODY, later, place_event, pop_event
from paracosm.simulation import failures_kernel, versions_kernel
from paracosm.simulation.steps_plan import (
    BACKGROUND,
    CHUNKS,
    CLOCK,
    DELAYS,
    EVENTS,
    FLOWS,
    ITERATION,
    LEFT,
    READY_STEPS,
    SHIFT,
    SLOWEST,
)
from paracosm.simulation.versions_kernel import UNREAD

OVER, FULL, PAUSED, LATE, FAULTY = range(5)
"""Why the loop came back: nothing is left to do until then, there is no room for another chunk or
for further rows of a schedule, as many events as were asked for are done, the clock goes no
further, a step updates a tensor that it has not read."""


@compiled_whole
def play_steps(plan: Any, until: Any, events: Any) -> Any:
    """Play at most so many events, none later than `until`; return why the loop stopped."""
    counts, traffic = plan.counts, plan.traffic
    now = counts[CLOCK]
    has_tensors = plan.versions.tensors.size > 0
    for _ in range(events):
        if counts[CHUNKS] == plan.chunks.size and plan.chunks.size > 0:
            return FULL
        if has_tensors:
            if plan.versions.counts[UNREAD] >= 0:
                return FAULTY
            if versions_kernel.has_no_room(plan.versions):
                return FULL
            if failures_kernel.has_no_room(plan.failures):
                return FULL
        item, op = np.int64(NOBODY), np.int64(NOBODY)
        if counts[EVENTS] == 0 or plan.heap[0].key > now:
            settle(traffic, now)
            end = next_end(traffic)
            if end == LAST_INSTANT and counts[EVENTS] == 0:
                versions_kernel.end_instant(plan.versions)
                return OVER if counts[FLOWS] == 0 else LATE
            if counts[EVENTS] > 0:
                end = min(end, plan.heap[0].key)
            if has_tensors and end > now:
                versions_kernel.end_instant(plan.versions)
            failure = failures_kernel.next_failure(plan.failures)
            change = counts[BACKGROUND]
            if (
                change < plan.background_times.size
                and plan.background_times[change] <= end
                and plan.background_times[change] <= failure
            ):
                if plan.background_times[change] > until:
                    return OVER
                now = counts[CLOCK] = plan.background_times[change]
                _change_background(plan, change)
                counts[BACKGROUND] += 1
                continue
            if failure < end and failure <= until:
                now = counts[CLOCK] = max(now, failure)
                worker = failures_kernel.fail_next(plan.failures, now)
                if plan.stages[worker].left > 0:
                    _abandon_step(plan, worker, now)
                continue
            if end > until:
                return LATE if until == LAST_INSTANT - 1 else OVER
            now = counts[CLOCK] = end
            item = _gather_flows(plan, now)
        if item < 0:
            item, op = plan.heap[0].item, plan.heap[0].op
            pop_event(plan.heap, counts[EVENTS])
            counts[EVENTS] -= 1
        worker = item >> SHIFT
        code = (item & ((1 << SHIFT) - 1)) - 1
        if code < 0:
            back = failures_kernel.back_at(plan.failures, worker, now)
            if back > now:
                _push(plan, back, worker, np.int64(NOBODY), np.int64(NOBODY))
                continue
            _begin_step(plan, worker, now)
        elif code < plan.lanes:
            _end_chunk(plan, worker, code, now)
        else:
            plan.stages[worker].later -= 1
            if op < 0:
                _make_ready(plan, worker, ~op, now)
            else:
                _end_op(plan, worker, op, now)
        for lane in range(plan.lanes):
            state = plan.lane_states[worker * plan.lanes + lane]
            if state.op == NOBODY and state.head != NOBODY:
                _start(plan, worker, lane, now)
    return PAUSED


@inlined
def _gather_flows(plan: Any, now: Any) -> Any:
    """Add transfers that end now to the instant's events; return a sole one, else -1."""
    item = pop_end(plan.traffic, now)
    only = item
    while item >= 0:
        plan.counts[FLOWS] -= 1
        item = pop_end(plan.traffic, now)
        if item < 0 and (plan.counts[EVENTS] == 0 or plan.heap[0].key > now):
            return only
        _push(plan, now, only >> SHIFT, (only & ((1 << SHIFT) - 1)) - 1, np.int64(NOBODY))
        only = item
    return only


@inlined
def _change_background(plan: Any, change: Any) -> None:
    """Set the number of background flows at each server's port."""
    for direction in range(2):
        for server in range(plan.servers):
            if plan.ports[direction, server] >= 0:
                station = plan.ports[direction, server]
                change_background(plan.traffic, station, plan.background[direction, change])


@inlined
def _send(plan: Any, worker: Any, lane: Any, now: Any) -> None:
    """Send the next bytes of a transfer: a window in its first turn, then all."""
    servers = plan.servers
    state = plan.lane_states[worker * plan.lanes + lane]
    task = plan.tasks[worker * plan.lane.size + state.op]
    amount = task.remaining
    if state.turn == 0:
        amount = min(amount, plan.window)
    task.remaining -= amount
    direction = np.int64(lane > servers)
    server = lane - direction * (servers + 1)
    way = plan.routes[(direction * plan.stages.size + worker) * servers + server]
    demand = amount * way.factor
    if state.turn == 0:
        demand += way.held
    if not way.is_flow:
        demand = np.floor(demand + 0.5)
    if demand > 0.0:
        weight = 1.0
        if plan.weighted:
            weight = plan.weight[worker, plan.stages[worker].step]
        item = (worker << SHIFT) | (lane + 1)
        state.flow = request(plan.traffic, way.route, item, demand, now, weight)
        plan.counts[FLOWS] += 1
    else:
        state.flow = NOBODY
        _push(plan, now, worker, lane, np.int64(NOBODY))


@inlined
def _quiet_until(plan: Any, worker: Any, now: Any) -> Any:
    """Return an instant before which no downlink of a worker ends."""
    time = LAST_INSTANT
    for server in range(plan.servers):
        state = plan.lane_states[worker * plan.lanes + server]
        if state.op >= 0:
            if state.flow == NOBODY:
                return now
            time = min(time, earliest_end(plan.traffic, state.flow, now))
    return time


@inlined
def _begin_step(plan: Any, worker: Any, now: Any) -> None:
    """Begin the worker's next step: ops without dependencies are put in their schedulers."""
    stage = plan.stages[worker]
    ops = plan.lane.size
    stage.drawn = plan.drawn[worker, stage.step]
    stage.left = ops
    stage.updated = 0
    stage.iteration = plan.counts[ITERATION]
    plan.step_begin[worker, stage.step] = now
    for op in range(ops):
        task = plan.tasks[worker * ops + op]
        task.missing = plan.waits[op]
        task.turn = 0
        task.remaining = plan.size[op]
    for index in range(plan.roots.shape[1]):
        root = np.int64(plan.roots[stage.drawn, index])
        if plan.release[stage.drawn, index] > 0:
            _push_later(plan, later(now, plan.release[stage.drawn, index]), worker, ~root)
        else:
            _make_ready(plan, worker, root, now)


@inlined
def _make_ready(plan: Any, worker: Any, op: Any, now: Any) -> None:
    """Put an op without open dependencies in its scheduler; a tensor is read now."""
    if plan.versions.tensors.size > 0 and plan.versions.read_by[op] >= 0:
        step, tensor = plan.stages[worker].step, np.int64(plan.versions.read_by[op])
        versions_kernel.read(plan.versions, worker, step, tensor, now)
    _put(plan, worker, op)


@inlined
def _put(plan: Any, worker: Any, op: Any) -> None:
    """Put an op in its scheduler: at the end, or by its priority."""
    lane = plan.lane[op]
    state = plan.lane_states[worker * plan.lanes + lane]
    base = worker * plan.lane.size
    task = plan.tasks[base + op]
    is_transfer = lane < plan.servers or plan.servers < lane <= 2 * plan.servers
    if state.head == NOBODY:
        task.next = NOBODY
        state.head = op
        state.tail = op
    elif not (plan.ordered and is_transfer and _is_before(plan, base, op, state.tail)):
        task.next = NOBODY
        plan.tasks[base + state.tail].next = op
        state.tail = op
    elif _is_before(plan, base, op, state.head):
        task.next = state.head
        state.head = op
    else:
        before = state.head
        while not _is_before(plan, base, op, np.int64(plan.tasks[base + before].next)):
            before = np.int64(plan.tasks[base + before].next)
        task.next = plan.tasks[base + before].next
        plan.tasks[base + before].next = op


@inlined
def _is_before(plan: Any, base: Any, op: Any, other: Any) -> Any:
    """Return whether an op that arrives now goes before another: earlier turn, lower priority."""
    turn, others = plan.tasks[base + op].turn, plan.tasks[base + other].turn
    return turn < others or (turn == others and plan.priority[op] < plan.priority[other])


@inlined
def _start(plan: Any, worker: Any, lane: Any, now: Any) -> None:
    """Give an idle lane the first op that waits for it."""
    servers = plan.servers
    state = plan.lane_states[worker * plan.lanes + lane]
    op = state.head
    task = plan.tasks[worker * plan.lane.size + op]
    state.head = task.next
    state.op = op
    state.begin = now
    state.turn = task.turn
    task.turn += 1
    if lane < servers or servers < lane <= 2 * servers:
        _send(plan, worker, lane, now)
    elif lane == servers:
        _compute(plan, worker, op, now)
    elif plan.cores > 0 and plan.core_states[lane - 2 * servers - 1].free == 0:
        _wait_for_core(plan, worker, lane)
    else:
        if plan.cores > 0:
            plan.core_states[lane - 2 * servers - 1].free -= 1
        _push(plan, later(now, plan.duration[plan.stages[worker].drawn, op]), worker, lane, op)


@inlined
def _compute(plan: Any, worker: Any, op: Any, now: Any) -> None:
    """Compute an op, and those after it for as long as no other worker is concerned.

    Ops that only enable others of the same worker need no event before the time at which another
    op could be enabled from outside.
    """
    lane = plan.servers
    state = plan.lane_states[worker * plan.lanes + lane]
    stage = plan.stages[worker]
    base = worker * plan.lane.size
    speed = plan.speed[worker]
    limit = now
    if plan.is_local[op] and stage.later == 0:
        limit = _quiet_until(plan, worker, now)
    end = later(now, _computing(plan.duration[stage.drawn, op], speed))
    while end < limit and plan.is_local[op]:
        for index in range(plan.first_dependent[op], plan.first_dependent[op + 1]):
            other = np.int64(plan.dependents[index])
            task = plan.tasks[base + other]
            task.missing -= 1
            if task.missing == 0:
                task.next = NOBODY
                if state.head == NOBODY:
                    state.head = other
                else:
                    plan.tasks[base + state.tail].next = other
                state.tail = other
        stage.left -= 1
        if state.head == NOBODY:
            state.op = NOBODY
            return
        op = state.head
        state.head = plan.tasks[base + op].next
        end = later(end, _computing(plan.duration[stage.drawn, op], speed))
    state.op = op
    _push(plan, end, worker, lane, op)


@inlined
def _computing(duration: Any, speed: Any) -> Any:
    """Return the picoseconds of an op on a worker of some speed."""
    if speed == 1.0:
        return duration
    return np.int64(min(duration / speed + 0.5, 4.6e18))


@inlined
def _push(plan: Any, time: Any, worker: Any, code: Any, op: Any) -> None:
    """Schedule an event of a worker: on a lane, or beyond all lanes."""
    item = (worker << SHIFT) | (code + 1)
    place_event(plan.heap, plan.counts[EVENTS], time, item, op)
    plan.counts[EVENTS] += 1


@inlined
def _push_later(plan: Any, time: Any, worker: Any, op: Any) -> None:
    """Schedule the end of an op, or its handing on (~op), without keeping a lane busy."""
    code = plan.lanes + plan.counts[DELAYS]
    plan.counts[DELAYS] += 1
    plan.stages[worker].later += 1
    _push(plan, time, worker, code, op)


@inlined
def _wait_for_core(plan: Any, worker: Any, lane: Any) -> None:
    """Enqueue a worker's update for a core of the server."""
    cores = plan.core_states[lane - 2 * plan.servers - 1]
    plan.lane_states[worker * plan.lanes + lane].next = NOBODY
    if cores.head == NOBODY:
        cores.head = worker
    else:
        plan.lane_states[cores.tail * plan.lanes + lane].next = worker
    cores.tail = worker


@inlined
def _end_chunk(plan: Any, worker: Any, lane: Any, now: Any) -> None:
    """End the chunk that runs on a lane: its op ends, or the rest of it waits for another turn."""
    servers = plan.servers
    state = plan.lane_states[worker * plan.lanes + lane]
    stage = plan.stages[worker]
    op = state.op
    state.op = NOBODY
    if op == LEFT:
        return
    if plan.chunks.size > 0:
        chunk = plan.chunks[plan.counts[CHUNKS]]
        chunk.worker, chunk.step, chunk.op = worker, stage.step, op
        chunk.turn, chunk.begin, chunk.end = state.turn, state.begin, now
        plan.counts[CHUNKS] += 1
    if lane < servers or servers < lane <= 2 * servers:
        if plan.tasks[worker * plan.lane.size + op].remaining > 0.0:
            _put(plan, worker, op)
            return
        direction = np.int64(lane > servers)
        server = lane - direction * (servers + 1)
        way = plan.routes[(direction * plan.stages.size + worker) * servers + server]
        delay = plan.duration[stage.drawn, op] + way.latency
        if delay > 0:
            _push_later(plan, later(now, delay), worker, op)
            return
    elif lane > servers and plan.cores > 0:
        _free_core(plan, lane, now)
    _end_op(plan, worker, op, now)


@inlined
def _free_core(plan: Any, lane: Any, now: Any) -> None:
    """Give a core to the worker that has waited for it longest."""
    cores = plan.core_states[lane - 2 * plan.servers - 1]
    worker = cores.head
    if worker == NOBODY:
        cores.free += 1
        return
    state = plan.lane_states[worker * plan.lanes + lane]
    cores.head = state.next
    state.begin = now
    duration = plan.duration[plan.stages[worker].drawn, state.op]
    _push(plan, later(now, duration), worker, lane, state.op)


@inlined
def _end_op(plan: Any, worker: Any, op: Any, now: Any) -> None:
    """End an op; ops that waited only for it are put in their schedulers."""
    stage = plan.stages[worker]
    base = worker * plan.lane.size
    if plan.versions.tensors.size > 0 and plan.versions.updated_by[op] >= 0:
        tensor = np.int64(plan.versions.updated_by[op])
        if not plan.versions.at_end:
            stage.updated += 1
            versions_kernel.push(plan.versions, worker, stage.step, tensor, now)
    for index in range(plan.first_dependent[op], plan.first_dependent[op + 1]):
        other = np.int64(plan.dependents[index])
        task = plan.tasks[base + other]
        task.missing -= 1
        if task.missing == 0:
            _make_ready(plan, worker, other, now)
    stage.left -= 1
    if stage.left == 0:
        _end_step(plan, worker, now)


@inlined
def _end_step(plan: Any, worker: Any, now: Any) -> None:
    """End a step, and resume the worker and those who waited for it as the mode requires."""
    stage = plan.stages[worker]
    if plan.backup != NOBODY:
        is_late = stage.iteration < plan.counts[ITERATION]
    else:
        is_late = plan.versions.at_end and versions_kernel.is_old(plan.versions, worker)
    plan.step_end[worker, stage.step] = now
    plan.accepted[worker, stage.step] = not is_late
    if plan.versions.tensors.size > 0:
        begin = plan.step_begin[worker, stage.step]
        versions_kernel.end_step(plan.versions, worker, stage.step, begin, now, is_late)
    if plan.slack != NOBODY:
        _resume_within_slack(plan, worker, now)
    elif plan.backup == NOBODY or is_late:
        _schedule_next_step(plan, worker, now)
    else:
        stage.waits = 1
        plan.counts[READY_STEPS] += 1
        if plan.counts[READY_STEPS] == plan.stages.size - plan.backup:
            plan.counts[READY_STEPS] = 0
            plan.counts[ITERATION] += 1
            _release(plan, now)


@inlined
def _resume_within_slack(plan: Any, worker: Any, now: Any) -> None:
    """Resume a worker that is not too far ahead of the slowest, and those that were."""
    counts, standing = plan.counts, plan.standing
    ended = plan.stages[worker].step + 1 - plan.stages[worker].lost
    standing[ended % standing.size] += 1
    standing[(ended - 1) % standing.size] -= 1
    if ended - counts[SLOWEST] <= plan.slack:
        _schedule_next_step(plan, worker, now)
    else:
        plan.stages[worker].waits = 1
    if standing[counts[SLOWEST] % standing.size] == 0:
        while standing[counts[SLOWEST] % standing.size] == 0:
            counts[SLOWEST] += 1
        _release(plan, now)


@inlined
def _release(plan: Any, now: Any) -> None:
    """Resume all workers that wait for others."""
    for other in range(plan.stages.size):
        if plan.stages[other].waits:
            plan.stages[other].waits = 0
            _schedule_next_step(plan, other, now)


@inlined
def _schedule_next_step(plan: Any, worker: Any, now: Any) -> None:
    """Schedule a worker's next step, after the gap."""
    stage = plan.stages[worker]
    stage.step += 1
    if stage.step < plan.drawn.shape[1]:
        _push(plan, later(now, plan.gap[stage.drawn]), worker, np.int64(NOBODY), np.int64(NOBODY))


@inlined
def _abandon_step(plan: Any, worker: Any, now: Any) -> None:
    """Drop the step of a worker that fails, and begin another when it is back."""
    counts, stage = plan.counts, plan.stages[worker]
    events = counts[EVENTS]
    counts[EVENTS] = 0
    for index in range(events):
        key, item, op = plan.heap[index].key, plan.heap[index].item, plan.heap[index].op
        if item >> SHIFT != worker:
            place_event(plan.heap, counts[EVENTS], key, item, op)
            counts[EVENTS] += 1
    for lane in range(plan.lanes):
        state = plan.lane_states[worker * plan.lanes + lane]
        state.head = NOBODY
        if state.op < 0:
            continue
        if lane < plan.servers or plan.servers < lane <= 2 * plan.servers:
            state.op = LEFT
        else:
            state.op = NOBODY
            if lane > plan.servers and plan.cores > 0:
                _release_core(plan, worker, lane, now)
    if plan.versions.tensors.size > 0:
        begin = plan.step_begin[worker, stage.step]
        is_whole = stage.updated == plan.versions.updated.size
        versions_kernel.note_step(plan.versions, worker, stage.step, begin, now, is_whole)
    plan.accepted[worker, stage.step] = False
    stage.left = stage.later = 0
    stage.lost += 1
    stage.step += 1
    if stage.step < plan.drawn.shape[1]:
        back = failures_kernel.back_at(plan.failures, worker, now)
        _push(plan, back, worker, np.int64(NOBODY), np.int64(NOBODY))


@inlined
def _release_core(plan: Any, worker: Any, lane: Any, now: Any) -> None:
    """Give back the core that a worker's update has, or its place among those that wait for one."""
    cores = plan.core_states[lane - 2 * plan.servers - 1]
    before, other = np.int64(NOBODY), cores.head
    while other != NOBODY and other != worker:
        before, other = other, plan.lane_states[other * plan.lanes + lane].next
    if other == NOBODY:
        _free_core(plan, lane, now)
        return
    behind = plan.lane_states[worker * plan.lanes + lane].next
    if before == NOBODY:
        cores.head = behind
    else:
        plan.lane_states[before * plan.lanes + lane].next = behind
    if cores.tail == worker:
        cores.tail = before
