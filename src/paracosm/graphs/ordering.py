"""An order of issue for nodes that name each other in any order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.graphs.check import cycle_message
from paracosm.graphs.cycles import find_cycle

__all__ = ["in_issue_order"]


def in_issue_order(
    waits: Sequence[Sequence[int]],
    priority: Sequence[Any],
    label: Callable[[int], str],
    where: str,
    hint: str = "",
) -> list[int]:
    """Return the rows 0..n-1, each after all that it waits for, else by priority.

    Args:
        waits: the rows that each row waits for, each but once.
        priority: of each row, distinct; the least goes first.
        label: how messages name a row.
        where: the file, for messages.
        hint: what to do about a cycle.

    Raises:
        InputError: a cycle, with its nodes.
    """
    waiting = [len(each) for each in waits]
    followers: list[list[int]] = [[] for _ in waits]
    for row, before in enumerate(waits):
        for each in before:
            followers[each].append(row)
    ready = [(priority[row], row) for row, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, row = heapq.heappop(ready)
        order.append(row)
        for after in followers[row]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (priority[after], after))
    if len(order) < len(waits):
        offsets = np.concatenate(([0], np.cumsum([len(each) for each in waits], dtype=np.int64)))
        wanted = np.array([each for before in waits for each in before], dtype=np.int64)
        cycle = find_cycle(offsets, wanted)
        raise InputError(f"{where}: {cycle_message([label(row) for row in cycle])}{hint}")
    return order
