"""Replay a task graph event by event: resources with policies, and shared links."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Ints
from paracosm.cluster.link import Packets
from paracosm.compiled_references import Referenced
from paracosm.errors import InputError
from paracosm.jobs.job import POLICIES, TaskGraph
from paracosm.simulation.events_kernel import LATE, arrange, play


@dataclass(frozen=True, eq=False)
class TaskTimes:
    """Instants of the n tasks of a task graph, in picoseconds from the beginning."""

    arrive: Ints  # takes its resource, or is ready where it has none
    begin: Ints  # later than `arrive` only for tasks of a meeting
    end: Ints  # its resource is free

    @property
    def makespan(self) -> int:
        """The instant in picoseconds at which the last task has ended; 0 of an empty graph."""
        return int(self.end.max(initial=0))


def replay_tasks(tasks: TaskGraph, label: Callable[[int], str] | None = None) -> TaskTimes:
    """Return when every task runs.

    A task is ready when all of its dependencies have ended, and arrives when its resource is free
    and chooses it. `TaskGraph` defines what follows, and the compiled loop (`events_kernel.py`) the
    order within an instant. Everything is decided by times, priorities and rows, so that the same
    tasks have the same instants on every machine.

    Args:
        tasks: what to replay.
        label: the name of a row's task in messages; "task 7" by default.
    """
    _check_tasks(tasks)
    plan = arrange(_of_exact_types(tasks))
    status = play(Referenced(plan))
    times = TaskTimes(plan.arrive, plan.begin, plan.end)
    if status == LATE:
        raise InputError(
            "replay: tasks end after 2**63 - 1 picoseconds (106 days), the range of the clock: "
            "shorten durations, or check their unit"
        )
    if len(tasks) and times.end.min() < 0:
        name = label or "task {}".format
        raise InputError(_deadlock_message(tasks, times.arrive, times.end, name))
    return times


_TYPES = {
    **dict.fromkeys(("resource", "priority", "meeting", "route", "routes", "policy"), np.int32),
    **dict.fromkeys(("duration", "offsets", "dependencies", "awaited", "route_offsets"), np.int64),
    **dict.fromkeys(("demand", "bandwidth"), np.float64),
}


def _of_exact_types(tasks: TaskGraph) -> TaskGraph:
    return TaskGraph(
        **{
            column.name: np.ascontiguousarray(getattr(tasks, column.name), _TYPES[column.name])
            for column in fields(tasks)
            if column.name in _TYPES
        },
        sharing=tasks.sharing,
    )


_SHOWN = 6
"""Tasks of a long cycle that its message names."""


def _deadlock_message(
    tasks: TaskGraph, arrive: Ints, end: Ints, label: Callable[[int], str]
) -> str:
    """Return one line that names a cycle of tasks that wait for one another.

    A task without an end waits for another one, so following these from the first row leads to a
    cycle. `arrive` and `end` are -1 for a task that did not get there.
    """
    stuck = np.flatnonzero(end < 0)
    lanes = _lanes(tasks, arrive, stuck)
    path: dict[int, tuple[int, str]] = {}
    row = int(stuck[0])
    while row not in path:
        path[row] = _waits_for(tasks, arrive, end, lanes, row)
        row = path[row][0]
    rows = list(path)
    cycle = rows[rows.index(row) :]
    links = [f"{label(one)} waits for {label(path[one][0])} ({path[one][1]})" for one in cycle]
    if len(links) > _SHOWN:
        links[_SHOWN:] = [f"and so on, {len(links)} in all"]
    return (
        f"replay: {len(stuck):,} of {len(tasks):,} tasks never end, because they, or others before "
        f"them, wait for one another: {'; '.join(links)}"
    )


class _Lanes(NamedTuple):
    """For every resource, the row that holds it and the first that never got it; -1 for none."""

    holder: Ints
    head: Ints


def _lanes(tasks: TaskGraph, arrive: Ints, stuck: Ints) -> _Lanes:
    holder, head = np.full((2, len(tasks.policy) + 1), -1, dtype=np.int64)  # the last is for -1
    holds = stuck[arrive[stuck] >= 0]
    wants = stuck[arrive[stuck] < 0][::-1]
    holder[tasks.resource[holds]] = holds
    head[tasks.resource[wants]] = wants  # of several rows for one place, the last stays
    return _Lanes(holder, head)


def _waits_for(
    tasks: TaskGraph, arrive: Ints, end: Ints, lanes: _Lanes, row: int
) -> tuple[int, str]:
    """Return a row without an end for which this one waits, and why."""
    if arrive[row] >= 0 and tasks.awaited[row] >= 0:
        return int(tasks.awaited[row]), "whose end it awaits"
    if arrive[row] >= 0:
        meeting = tasks.meeting[row]
        absent = np.flatnonzero((tasks.meeting == meeting) & (arrive < 0))
        return int(absent[0]), f"for their meeting {meeting}"
    before = tasks.dependencies[tasks.offsets[row] : tasks.offsets[row + 1]]
    unmet = before[end[before] < 0]
    if len(unmet):
        return int(unmet[0]), "which it depends on"
    resource = int(tasks.resource[row])
    holder = int(lanes.holder[resource])
    if holder >= 0:
        return holder, f"which holds resource {resource}"
    return int(lanes.head[resource]), f"which comes before it on resource {resource}"


_COLUMNS = ("duration", "priority", "meeting", "awaited", "route", "demand")


def _check_tasks(tasks: TaskGraph) -> None:
    """Check that the arrays of `tasks` are consistent, in time linear in their lengths."""
    n = len(tasks)
    if tasks.sharing not in ("fair", "serial") and not isinstance(tasks.sharing, Packets):
        raise InputError(f'replay: sharing must be fair, serial or packets, not "{tasks.sharing}"')
    if n >= 2**31:
        raise InputError(f"replay: {n:,} tasks are too many: below 2**31 can be replayed at once")
    for column in _COLUMNS:
        if len(getattr(tasks, column)) != n:
            raise InputError(
                f"replay: {column} has {len(getattr(tasks, column))} entries for {n} tasks"
            )
    _check_offsets("offsets", tasks.offsets, n, len(tasks.dependencies))
    routes = len(tasks.route_offsets) - 1
    _check_offsets("route_offsets", tasks.route_offsets, routes, len(tasks.routes))
    _check_codes("task", "resource", tasks.resource, -1, len(tasks.policy))
    _check_codes("dependency", "task", tasks.dependencies, 0, n)
    _check_codes("task", "meeting", tasks.meeting, -1, 2**31)
    _check_codes("task", "awaited task", tasks.awaited, -1, n)
    _check_codes("task", "route", tasks.route, -1, routes)
    _check_codes("hop", "link", tasks.routes, 0, len(tasks.bandwidth))
    _check_codes("resource", "policy", tasks.policy, 0, len(POLICIES))
    _check_numbers(tasks)
    _check_kinds(tasks)


def _check_offsets(name: str, offsets: Ints, rows: int, entries: int) -> None:
    if len(offsets) != rows + 1 or not len(offsets):
        raise InputError(f"replay: {name} has {len(offsets)} entries for {rows} rows, not one more")
    if offsets[0] != 0 or offsets[-1] != entries or np.any(offsets[1:] < offsets[:-1]):
        raise InputError(f"replay: {name} must ascend from 0 to {entries}")


def _check_codes(
    row: str, what: str, column: npt.NDArray[np.integer], low: int, count: int
) -> None:
    if len(column) and not (low <= column.min() and column.max() < count):
        wrong = int(np.flatnonzero((column < low) | (column >= count))[0])
        raise InputError(
            f"replay: {row} {wrong}: there is no {what} {column[wrong]}, only {count} of them"
        )


def _check_numbers(tasks: TaskGraph) -> None:
    if len(tasks) and tasks.duration.min() < 0:
        row = int(np.flatnonzero(tasks.duration < 0)[0])
        raise InputError(f"replay: task {row}: duration {tasks.duration[row]} ps; give 0 or more")
    if not 0 <= tasks.demand.min(initial=0.0) <= tasks.demand.max(initial=0.0) < np.inf:
        row = int(np.flatnonzero(~((tasks.demand >= 0) & np.isfinite(tasks.demand)))[0])
        raise InputError(f"replay: task {row}: demand {tasks.demand[row]}; give 0 or more")
    if not np.all(tasks.bandwidth > 0):
        link = int(np.flatnonzero(~(tasks.bandwidth > 0))[0])
        raise InputError(
            f"replay: link {link}: bandwidth {tasks.bandwidth[link]} bytes/s; give more than 0"
        )
    rows = np.repeat(np.arange(len(tasks.route_offsets) - 1), np.diff(tasks.route_offsets))
    hops = rows * len(tasks.bandwidth) + tasks.routes
    if len(np.unique(hops)) < len(hops):
        twice = np.flatnonzero(np.bincount(np.unique(hops, return_inverse=True)[1]) > 1)[0]
        route, link = divmod(int(np.unique(hops)[twice]), len(tasks.bandwidth))
        raise InputError(f"replay: route {route} has link {link} twice; give each link once")


def _check_kinds(tasks: TaskGraph) -> None:
    columns: dict[str, Any] = {
        "is part of a meeting": tasks.meeting,
        "awaits another task": tasks.awaited,
        "has a route": tasks.route,
    }
    columns_there = {
        text: column >= 0 for text, column in columns.items() if column.max(initial=-1) >= 0
    }
    for one, other in combinations(columns_there, 2):
        both = np.flatnonzero(columns_there[one] & columns_there[other])
        if len(both):
            raise InputError(f"replay: task {both[0]} {one} and {other}: give it one of these")
