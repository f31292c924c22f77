"""A task graph replayed without haste: the reference that tests compare the compiled loop with.

It is the paper's loop (see `replay_literal.py`), in plain Python and exact arithmetic: a ready
list, a job queue for every device, dependency counters; and beside it what that loop has not:
policies, meetings, awaited ends, flows. At every instant the rates of all flows are worked out
anew, by the textbook's progressive filling over single flows (Bertsekas and Gallager, "Data
Networks", 1992, section 6.5.2). Nothing is kept that could be worked out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from paracosm.jobs.job import POLICIES, TaskGraph

__all__ = ["Instants", "max_min_rates", "replay_tasks_literally"]

Instants = list[int | None]

FORGIVEN = Fraction(1, 1024)
"""Picoseconds by which a flow may end before its last byte is there."""


def replay_tasks_literally(tasks: TaskGraph) -> tuple[Instants, Instants, Instants]:
    """Return when each task arrives, begins and ends, in picoseconds; None for never."""
    n = len(tasks)
    dependencies = [
        tasks.dependencies[tasks.offsets[row] : tasks.offsets[row + 1]].tolist() for row in range(n)
    ]
    routes = [_route(tasks, row) for row in range(n)]
    bandwidth = {
        link: Fraction(value) / 10**12
        for link, value in enumerate(tasks.bandwidth.tolist())
        if math.isfinite(value)
    }
    members = {
        number: [row for row in range(n) if tasks.meeting[row] == number]
        for number in set(tasks.meeting.tolist()) - {-1}
    }
    counter = [len(before) for before in dependencies]
    ready_at: Instants = [None] * n
    arrive: Instants = [None] * n
    begin: Instants = [None] * n
    end: Instants = [None] * n
    queues: list[list[int]] = [[] for _ in tasks.policy]
    holder: list[int | None] = [None for _ in tasks.policy]
    over: dict[int, int] = {}  # when the durations of tasks are over
    left: dict[int, Fraction] = {}  # bytes of flows
    now = 0

    def arrives(row: int) -> None:
        arrive[row] = now
        together = members.get(int(tasks.meeting[row]), [row])
        if any(arrive[other] is None for other in together):
            return
        longest = max(int(tasks.duration[other]) for other in together)
        for other in together:
            begin[other] = now
            over[other] = now + longest
        if tasks.awaited[row] >= 0:
            awaited = end[tasks.awaited[row]]
            over[row] = max(now, int(tasks.duration[row]) + (0 if awaited is None else awaited))
            if awaited is None:
                del over[row]

    def ends(row: int) -> list[int]:
        """End a task and return those that are ready now."""
        end[row] = now
        if tasks.resource[row] >= 0:
            holder[tasks.resource[row]] = None
        for other in range(n):
            started = begin[other]
            if tasks.awaited[other] == row and started is not None and other not in over:
                over[other] = now + int(tasks.duration[other])
        ready = []
        for other in range(n):
            counter[other] -= dependencies[other].count(row)
            if row in dependencies[other] and counter[other] == 0:
                ready.append(other)
        return ready

    ready = [row for row in range(n) if counter[row] == 0]
    while True:
        for row in ready:
            ready_at[row] = now
            if tasks.resource[row] < 0:
                arrives(row)
            else:
                queues[tasks.resource[row]].append(row)
        for resource, queue in enumerate(queues):
            row = _next(tasks, resource, queue, ready_at, arrive)
            if row >= 0 and holder[resource] is None:
                queue.remove(row)
                holder[resource] = row
                arrives(row)
        ready = []
        if now not in over.values():
            rates = max_min_rates({row: routes[row] for row in left}, bandwidth)
            done = {row: now + _whole(left[row] / rates[row]) for row in left}
            if not over and not done:
                return arrive, begin, end
            then = min([*over.values(), *done.values()])
            for row in left:
                left[row] -= rates[row] * (then - now)
            now = then
            finished = [row for row in done if done[row] == now]
            left = {row: left[row] for row in left if row not in finished}
        else:
            finished = []
        passed = [row for row in over if over[row] == now]
        over = {row: over[row] for row in over if row not in passed}
        for row in passed:
            if routes[row] and tasks.demand[row] > 0:
                left[row] = Fraction(float(tasks.demand[row]))
            else:
                finished.append(row)
        for row in finished:
            ready += ends(row)


def max_min_rates(
    routes: Mapping[int, Sequence[int]], bandwidth: Mapping[int, Fraction]
) -> dict[int, Fraction]:
    """Return the max-min fair rate of every flow, from the links that it takes.

    Progressive filling: the link with the least for each of its flows fixes the rates of these.
    """
    rates: dict[int, Fraction] = {}
    left = dict(bandwidth)
    while len(rates) < len(routes):
        growing = [flow for flow in routes if flow not in rates]
        shares = {}
        for link in left:
            load = sum(link in routes[flow] for flow in growing)
            if load:
                shares[link] = left[link] / load
        share = min(shares.values())
        narrow = {link for link in shares if shares[link] == share}
        for flow in growing:
            if narrow & set(routes[flow]):
                rates[flow] = share
                for link in routes[flow]:
                    left[link] -= share
    return rates


def _next(
    tasks: TaskGraph, resource: int, queue: list[int], ready_at: Instants, arrive: Instants
) -> int:
    """Return the row that a resource takes next, by its policy; -1 for none."""
    if not queue:
        return -1
    match POLICIES[tasks.policy[resource]]:
        case "in order":
            rows = [row for row in range(len(tasks)) if tasks.resource[row] == resource]
            head = next(row for row in rows if arrive[row] is None)
            return head if head in queue else -1
        case "fifo":
            return min(queue, key=lambda row: (ready_at[row], row))
        case _:
            return min(queue, key=lambda row: (tasks.priority[row], row))


def _route(tasks: TaskGraph, row: int) -> list[int]:
    """Return the links on the route of a task that could hold it up."""
    route = tasks.route[row]
    if route < 0:
        return []
    links = tasks.routes[tasks.route_offsets[route] : tasks.route_offsets[route + 1]].tolist()
    return [link for link in links if math.isfinite(tasks.bandwidth[link])]


def _whole(picoseconds: Fraction) -> int:
    return max(0, math.ceil(picoseconds - FORGIVEN))
