"""Who waits for whom when nothing can happen any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs import TaskGraph

__all__ = ["deadlock_message"]

Ints = npt.NDArray[np.int64]

_SHOWN = 6
"""Tasks of a long cycle that its message names."""


def deadlock_message(tasks: TaskGraph, arrive: Ints, end: Ints, label: Callable[[int], str]) -> str:
    """Return one line that names a cycle of tasks that wait for one another.

    Whoever has no end waits for somebody who has none, so that to go from one to the next, from
    the first row on, leads to a cycle.

    Args:
        tasks: that were replayed.
        arrive, end: n instants, -1 where a task never came to it. Some have no end.
        label: what to call the task of a row.
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


@dataclass(frozen=True, eq=False)
class _Lanes:
    """Of every resource, the row that holds it and the first that never got it; -1 for none."""

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
