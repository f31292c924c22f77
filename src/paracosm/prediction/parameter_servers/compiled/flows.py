"""Transfers that share ports: who gets how much, and which ends next.

Where only servers' ports limit (the workers' are wide enough), all flows of a port get the same, so
a port needs only the bytes that each of its flows has got since it was last idle (its *virtual
time*: Parekh and Gallager, "A Generalized Processor Sharing Approach to Flow Control", 1993) and a
heap of the virtual times at which its flows end, which do not change with the rate: O(log n) an
event. Otherwise rates are max-min fair by progressive filling (Bertsekas and Gallager, "Data
Networks", 1992, section 6.5.2), found anew whenever a flow comes or goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import inlined
from paracosm.network.heaps import place_event, pop_event
from paracosm.prediction.parameter_servers.compiled.plan import SHIFT

_NO_OP = np.int64(-1)
_ROUNDING = 1e-9

__all__ = ["begin_flow", "change_background", "end_flow", "next_flow", "undisturbed"]


@inlined
def begin_flow(
    plan: Any, direction: Any, server: Any, worker: Any, lane: Any, amount: Any, now: Any
) -> None:
    """Let a worker's transfer of `amount` bytes share the ports of a direction from now on."""
    item = (worker << SHIFT) | (lane + 1)
    weight = _weight(plan, worker)
    if plan.is_simple[direction]:
        port = plan.ports[direction * plan.servers + server]
        _advance(port, now)
        target = port.virtual + amount / weight
        plan.lane_states[worker * plan.lanes + lane].target = target
        place_event(plan.port_heap, port.first, port.flows, target, item, _NO_OP)
        port.flows += 1
        port.load += weight
        _foresee(plan, port, now)
    else:
        _advance_all(plan, direction, now)
        first = direction * (plan.flows.size // 2)
        flow = plan.flows[first + plan.flow_counts[direction]]
        flow.item, flow.server, flow.worker, flow.remaining = item, server, worker, amount
        flow.weight = weight
        plan.flow_counts[direction] += 1
        _share(plan, direction, now)


@inlined
def undisturbed(plan: Any, worker: Any, now: Any) -> Any:
    """Return a time before which no downlink of a worker can end: each could get a whole port."""
    time = np.inf
    for server in range(plan.servers):
        state = plan.lane_states[worker * plan.lanes + server]
        if state.op >= 0:
            if not plan.is_simple[0]:
                return now
            port = plan.ports[server]
            bytes_left = (state.target - _virtual(port, now)) * _weight(plan, worker)
            time = min(time, now + (1.0 - _ROUNDING) * bytes_left * port.period)
    return time


@inlined
def next_flow(plan: Any) -> Any:
    """Return when the next transfer ends, its item and its port; infinity if there is none."""
    time, item, found = np.inf, np.int64(0), np.int64(-1)
    for direction in range(2):
        if plan.is_simple[direction]:
            for server in range(plan.servers):
                index = direction * plan.servers + server
                port = plan.ports[index]
                if port.next <= time and port.flows > 0:
                    own = plan.port_heap[port.first].item
                    if port.next < time or own < item:
                        time, item, found = port.next, own, np.int64(index)
        elif plan.flow_next[direction] <= time and plan.flow_counts[direction] > 0:
            own = plan.flows[_soonest(plan, direction)].item
            if plan.flow_next[direction] < time or own < item:
                time, item = plan.flow_next[direction], own
                found = np.int64(direction * plan.servers)
    return time, item, found


@inlined
def end_flow(plan: Any, found: Any, now: Any) -> None:
    """Take away the transfer that `next_flow` found at a port."""
    direction = found // plan.servers
    if plan.is_simple[direction]:
        port = plan.ports[found]
        # Set, not counted: flows that end together must not be kept apart by rounding.
        port.virtual = plan.port_heap[port.first].key
        port.since = now
        worker = plan.port_heap[port.first].item >> SHIFT
        pop_event(plan.port_heap, port.first, port.flows)
        port.flows -= 1
        port.load = port.load - _weight(plan, worker) if port.flows > 0 else 0.0
        _foresee(plan, port, now)
    else:
        gone = plan.flows[_soonest(plan, direction)]
        _advance_all(plan, direction, now)
        plan.flow_counts[direction] -= 1
        first = direction * (plan.flows.size // 2)
        last = plan.flows[first + plan.flow_counts[direction]]
        gone.item, gone.server, gone.worker = last.item, last.server, last.worker
        gone.remaining, gone.weight, gone.rate = last.remaining, last.weight, last.rate
        _share(plan, direction, now)


@inlined
def change_background(plan: Any, change: Any, now: Any) -> None:
    """Let so many other flows share each server's port from now on."""
    for direction in range(2):
        if plan.is_simple[direction]:
            for server in range(plan.servers):
                port = plan.ports[direction * plan.servers + server]
                _advance(port, now)
                port.background = plan.background[direction, change]
                _foresee(plan, port, now)
        else:
            _advance_all(plan, direction, now)
            for server in range(plan.servers):
                port = plan.ports[direction * plan.servers + server]
                port.background = plan.background[direction, change]
            _share(plan, direction, now)


@inlined
def _weight(plan: Any, worker: Any) -> Any:
    """Return the weight of a worker's transfers in its step."""
    if plan.weighted:
        return plan.weight[worker, plan.stages[worker].step]
    return 1.0


@inlined
def _advance(port: Any, now: Any) -> None:
    """Count what each flow of a port has got up to now."""
    port.virtual = 0.0 if port.flows == 0 else _virtual(port, now)
    port.since = now


@inlined
def _virtual(port: Any, now: Any) -> Any:
    """Return the bytes that a flow of weight 1 has got up to now."""
    if now > port.since and port.period > 0.0:
        return port.virtual + (now - port.since) / ((port.load + port.background) * port.period)
    return port.virtual


@inlined
def _foresee(plan: Any, port: Any, now: Any) -> None:
    """Find out when the port's next flow ends if nothing changes."""
    if port.flows == 0:
        port.next = np.inf
    else:
        bytes_left = max(plan.port_heap[port.first].key - port.virtual, 0.0)
        port.next = now + bytes_left * (port.load + port.background) * port.period


@inlined
def _advance_all(plan: Any, direction: Any, now: Any) -> None:
    """Count what each flow of a direction still has to bring."""
    first = direction * (plan.flows.size // 2)
    passed = now - plan.flow_since[direction]
    if passed > 0.0:
        for index in range(first, first + plan.flow_counts[direction]):
            flow = plan.flows[index]
            if flow.rate < np.inf:
                flow.remaining = max(flow.remaining - flow.rate * passed, 0.0)
    plan.flow_since[direction] = now


@inlined
def _share(plan: Any, direction: Any, now: Any) -> None:
    """Give every flow of a direction its max-min fair rate, and find the next end."""
    first = direction * (plan.flows.size // 2)
    last = first + plan.flow_counts[direction]
    theirs = direction * plan.servers
    own = direction * (plan.worker_ports.size // 2)
    for index in range(first, last):
        flow = plan.flows[index]
        flow.fixed = 0
        port = plan.ports[theirs + flow.server]
        port.unfixed, port.left = port.background, 1.0 / port.period
        port = plan.worker_ports[own + flow.worker]
        port.unfixed, port.left = 0, 1.0 / port.period
    for index in range(first, last):
        flow = plan.flows[index]
        plan.ports[theirs + flow.server].unfixed += flow.weight
        plan.worker_ports[own + flow.worker].unfixed += flow.weight
    fixed = first
    while fixed < last:
        level = np.inf
        for index in range(first, last):
            flow = plan.flows[index]
            if not flow.fixed:
                server = plan.ports[theirs + flow.server]
                worker = plan.worker_ports[own + flow.worker]
                level = min(level, server.left / server.unfixed, worker.left / worker.unfixed)
        # Who is at the level is found before anything is taken away from its ports.
        for index in range(first, last):
            flow = plan.flows[index]
            server = plan.ports[theirs + flow.server]
            worker = plan.worker_ports[own + flow.worker]
            if not flow.fixed and (
                server.left / server.unfixed <= level or worker.left / worker.unfixed <= level
            ):
                flow.fixed = 2
        for index in range(first, last):
            flow = plan.flows[index]
            if flow.fixed == 2:
                flow.fixed = 1
                flow.rate = level * flow.weight
                fixed += 1
                _take(plan.ports[theirs + flow.server], flow)
                _take(plan.worker_ports[own + flow.worker], flow)
    _find_next(plan, direction, now)


@inlined
def _take(port: Any, flow: Any) -> None:
    """Give one flow of a port its rate."""
    if port.left < np.inf:
        port.left = max(port.left - flow.rate, 0.0)
    port.unfixed -= flow.weight


@inlined
def _find_next(plan: Any, direction: Any, now: Any) -> None:
    """Find out when the next flow of a direction ends if nothing changes."""
    soonest = np.inf
    first = direction * (plan.flows.size // 2)
    for index in range(first, first + plan.flow_counts[direction]):
        soonest = min(soonest, _lasts(plan.flows[index]))
    plan.flow_next[direction] = now + soonest


@inlined
def _soonest(plan: Any, direction: Any) -> Any:
    """Return the flow of a direction that ends first; of several, the first worker's."""
    first = direction * (plan.flows.size // 2)
    found, shortest = first, np.inf
    for index in range(first, first + plan.flow_counts[direction]):
        flow = plan.flows[index]
        lasts = _lasts(flow)
        if lasts < shortest or (lasts == shortest and flow.item < plan.flows[found].item):
            found, shortest = index, lasts
    return found


@inlined
def _lasts(flow: Any) -> Any:
    """Return how long a flow still takes at its rate."""
    if flow.remaining <= 0.0 or flow.rate == np.inf:
        return 0.0
    return flow.remaining / flow.rate
