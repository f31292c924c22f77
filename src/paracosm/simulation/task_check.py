"""What must hold of a task graph before it is replayed; the first thing that does not is named."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs import POLICIES, TaskGraph

__all__ = ["check_tasks"]

COLUMNS = ("duration", "priority", "meeting", "awaited", "route", "demand")


def check_tasks(tasks: TaskGraph) -> None:
    """Make sure that the arrays of `tasks` go together, in time linear in their lengths.

    Raises:
        InputError: a sharing that is unknown; columns of unequal length; offsets that do not
            ascend; rows, resources, meetings, routes, links or policies that are not there;
            durations that are negative; demands that are negative or not finite; a link without
            bandwidth; a route with a link twice; a task that is two of these: part of a meeting,
            awaiting another task, a flow.
    """
    n = len(tasks)
    if tasks.sharing not in ("fair", "serial"):
        raise InputError(f'replay: sharing must be fair or serial, not "{tasks.sharing}"')
    if n >= 2**31:
        raise InputError(f"replay: {n:,} tasks are too many: below 2**31 can be replayed at once")
    for column in COLUMNS:
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


def _check_offsets(name: str, offsets: npt.NDArray[np.int64], rows: int, entries: int) -> None:
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
    found = {text: column >= 0 for text, column in columns.items() if column.max(initial=-1) >= 0}
    for one, other in combinations(found, 2):
        both = np.flatnonzero(found[one] & found[other])
        if len(both):
            raise InputError(f"replay: task {both[0]} {one} and {other}: give it one of these")
