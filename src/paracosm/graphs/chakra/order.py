"""An order of issue for a trace whose ids are none."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.errors import InputError
from paracosm.graphs.chakra.trace import TraceNode
from paracosm.graphs.check import cycle_message, node_label
from paracosm.graphs.cycles import find_cycle

__all__ = ["issue_order"]


def issue_order(
    nodes: Sequence[TraceNode],
    dependencies: Mapping[int, Sequence[int]],
    where: str,
    hint: str = "",
) -> list[TraceNode]:
    """Return nodes after all that they wait for, else by start time, then by id.

    Args:
        nodes: those of a trace, with ids of their own.
        dependencies: ids that each id waits for; all of them are there, each but once.
        where: the file, for messages.
        hint: what to do about a cycle.

    Raises:
        InputError: a cycle, with its nodes.
    """
    rows = {node.id: row for row, node in enumerate(nodes)}
    waiting = [len(dependencies[node.id]) for node in nodes]
    followers: list[list[int]] = [[] for _ in nodes]
    for row, node in enumerate(nodes):
        for before in dependencies[node.id]:
            followers[rows[before]].append(row)
    ready = [(node.start, node.id, row) for row, node in enumerate(nodes) if not waiting[row]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, _, row = heapq.heappop(ready)
        order.append(nodes[row])
        for after in followers[row]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (nodes[after].start, nodes[after].id, after))
    if len(order) < len(nodes):
        raise InputError(f"{where}: {_cycle(nodes, dependencies, rows)}{hint}")
    return order


def _cycle(
    nodes: Sequence[TraceNode], dependencies: Mapping[int, Sequence[int]], rows: Mapping[int, int]
) -> str:
    counts = [len(dependencies[node.id]) for node in nodes]
    wanted = [rows[before] for node in nodes for before in dependencies[node.id]]
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    cycle = find_cycle(offsets, np.array(wanted, dtype=np.int64))
    return cycle_message([node_label(nodes[row].id, nodes[row].name) for row in cycle])
