"""The consistency of graphs; the first violation is reported with its node."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.units import whole

_SHOWN = 6
"""Nodes of a long cycle that its message names."""

_LONGEST = 60
"""Letters of an op's name in messages: kernels are named by all their template arguments."""


def check(graph: Graph, where: str = "graph") -> None:
    """Check that `graph` can be replayed, in time linear in nodes and dependencies.

    An in-order stream issues nodes in the order of their ids. A node that waits for one with a
    higher id would therefore block that one, and itself, forever: it is refused like a cycle.
    `where` is the file or other origin of the graph, for messages.

    Raises:
        InputError: ids that repeat, descend or are negative; work or durations below 0; codes out
            of range; dependencies on rows that are not there, on later ones, or in a cycle;
            storages that are used before they are allocated.
    """
    _check_lengths(graph, where)
    _check_ops(graph, where)
    _check_ids(graph, where)
    _check_codes(graph, where)
    _check_durations(graph, where)
    _check_dependencies(graph, where)
    _check_storages(graph, where)


def node_label(node: int, op: str, name: str = "") -> str:
    """Return the description of a node in messages: its id, its op, its place in the model."""
    short = op if len(op) <= _LONGEST else f"{op[: _LONGEST - 3]}..."
    return f"node {node} ({short}, {name})" if name else f"node {node} ({short})"


def cycle_message(labels: Sequence[str]) -> str:
    """Return the description of a cycle in messages, each node waiting for the next one."""
    if len(labels) == 1:
        return f"{labels[0]} depends on itself"
    named = [*labels[:_SHOWN]]
    if len(labels) > _SHOWN:
        named.append(f"{len(labels) - _SHOWN} more")
    return f"a cycle of dependencies: {' waits for '.join(named)}, and so again for {labels[0]}"


def _label(graph: Graph, row: int) -> str:
    op, name = graph.op[row], graph.name[row]
    return node_label(
        int(graph.id[row]),
        graph.ops[op].name if 0 <= op < len(graph.ops) else "op unknown",
        graph.names[name] if 0 <= name < len(graph.names) else "",
    )


def _check_lengths(graph: Graph, where: str) -> None:
    n = len(graph)
    for column in ("op", "name", "phase", "resource", "group", "duration"):
        if len(getattr(graph, column)) != n:
            raise InputError(
                f"{where}: {column} has {len(getattr(graph, column))} entries for {n} nodes"
            )
    offsets = graph.offsets
    if len(offsets) != n + 1:
        raise InputError(f"{where}: offsets has {len(offsets)} entries for {n} nodes, not {n + 1}")
    if offsets[0] != 0 or offsets[-1] != len(graph.dependencies) or np.any(np.diff(offsets) < 0):
        raise InputError(
            f"{where}: offsets must ascend from 0 to the {len(graph.dependencies)} dependencies"
        )
    storages = graph.storages
    if not len(storages.size) == len(storages.first) == len(storages.last):
        raise InputError(f"{where}: size, first and last of storages differ in length")


def _check_ops(graph: Graph, where: str) -> None:
    for name in graph.names:
        if not isinstance(name, str):
            raise InputError(f"{where}: the name of a node is a text, not {name!r}")
    for op in graph.ops:
        if not isinstance(op.name, str) or not isinstance(op.arguments, str):
            raise InputError(f"{where}: name and arguments of an op are texts, not {op!r}")
        for what in ("flops", "bytes_read", "bytes_written"):
            number = whole(getattr(op, what))
            if number is None or not 0 <= number < 2**63:
                raise InputError(
                    f"{where}: the op {op.name} has {getattr(op, what)} {what}; give a whole "
                    "number, 0 or more, below 2**63"
                )


def _check_ids(graph: Graph, where: str) -> None:
    steps = np.diff(graph.id)
    if len(same := np.flatnonzero(steps == 0)):
        one, other = int(same[0]), int(same[0]) + 1
        raise InputError(
            f"{where}: {_label(graph, one)} and {_label(graph, other)} have the same id"
        )
    if len(down := np.flatnonzero(steps < 0)):
        one, other = int(down[0]), int(down[0]) + 1
        raise InputError(
            f"{where}: {_label(graph, other)} follows {_label(graph, one)}: ids must ascend"
        )
    if len(graph) and graph.id[0] < 0:
        raise InputError(f"{where}: {_label(graph, 0)}: ids must not be negative")


def _check_codes(graph: Graph, where: str) -> None:
    codes: list[tuple[str, Codes, int, int]] = [
        ("op", graph.op, 0, len(graph.ops)),
        ("name", graph.name, 0, len(graph.names)),
        ("phase", graph.phase, 0, len(PHASES)),
        ("resource", graph.resource, 0, len(RESOURCES)),
        ("group", graph.group, -1, len(graph.groups)),
    ]
    for what, column, low, count in codes:
        for row in np.flatnonzero((column < low) | (column >= count))[:1].tolist():
            raise InputError(
                f"{where}: {_label(graph, row)}: there is no {what} {column[row]}, only {count}"
            )


def _check_durations(graph: Graph, where: str) -> None:
    for row in np.flatnonzero((graph.duration < 0) | np.isinf(graph.duration))[:1].tolist():
        raise InputError(
            f"{where}: {_label(graph, row)}: duration {graph.duration[row]} s; give 0 or more, "
            "or NaN where it is not known"
        )


def _check_dependencies(graph: Graph, where: str) -> None:
    n, wanted = len(graph), graph.dependencies
    rows = np.repeat(np.arange(n), np.diff(graph.offsets))
    if len(wrong := np.flatnonzero((wanted < 0) | (wanted >= n))):
        row = int(rows[wrong[0]])
        raise InputError(
            f"{where}: {_label(graph, row)} depends on row {wanted[wrong[0]]}, "
            f"which is not among the {n} of the graph"
        )
    if len(late := np.flatnonzero(wanted >= rows)):
        # Only now can there be a cycle: edges that all point back close none.
        if cycle := find_cycle(graph.offsets, wanted):
            raise InputError(f"{where}: {cycle_message([_label(graph, row) for row in cycle])}")
        row, later = int(rows[late[0]]), int(wanted[late[0]])
        raise InputError(
            f"{where}: {_label(graph, row)} waits for {_label(graph, later)}, which is issued "
            "after it: a stream that runs in order would never end; number them in another order"
        )
    inside = rows[1:] == rows[:-1]
    if len(wrong := np.flatnonzero(inside & (np.diff(wanted) <= 0))):
        row = int(rows[wrong[0]])
        raise InputError(
            f"{where}: {_label(graph, row)}: its dependencies must ascend, each but once"
        )


def _check_storages(graph: Graph, where: str) -> None:
    size, first, last = graph.storages.size, graph.storages.first, graph.storages.last
    n = len(graph)
    for one in np.flatnonzero((first < -1) | (first >= n) | (last < 0) | (last > n))[:1].tolist():
        raise InputError(
            f"{where}: storage {one} is held from row {first[one]} to row {last[one]}, "
            f"in a graph of {n} rows"
        )
    for one in np.flatnonzero(last < first)[:1].tolist():
        raise InputError(
            f"{where}: {_label(graph, int(last[one]))} is the last to use a storage of "
            f"{size[one]} bytes that {_label(graph, int(first[one]))} allocates only after it"
        )
    for one in np.flatnonzero(size < 0)[:1].tolist():
        raise InputError(f"{where}: storage {one} has {size[one]} bytes")
    for what, held in graph.resident.items():
        if held < 0:
            raise InputError(f"{where}: {held} resident bytes of {what}")


def in_issue_order(
    waits: Sequence[Sequence[int]],
    priority: Sequence[Any],
    label: Callable[[int], str],
    where: str,
    hint: str = "",
) -> list[int]:
    """Return the rows 0..n-1, each after all that it waits for, else by priority."""
    waiting = [len(wait) for wait in waits]
    followers: list[list[int]] = [[] for _ in waits]
    for row, before in enumerate(waits):
        for earlier in before:
            followers[earlier].append(row)
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
        offsets = np.concatenate(([0], np.cumsum([len(wait) for wait in waits], dtype=np.int64)))
        wanted = np.array([earlier for before in waits for earlier in before], dtype=np.int64)
        cycle = find_cycle(offsets, wanted)
        raise InputError(f"{where}: {cycle_message([label(row) for row in cycle])}{hint}")
    return order


def find_cycle(offsets: Ints, dependencies: Ints) -> list[int]:
    """Return a shortest cycle through the lowest row that is on any, or nothing."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    of_themselves = rows[rows == dependencies]
    n = len(offsets) - 1
    waits = csr_array((np.ones(len(rows), dtype=np.int8), (rows, dependencies)), shape=(n, n))
    _, component = connected_components(waits, directed=True, connection="strong")
    joined = np.flatnonzero(np.bincount(component)[component] > 1)
    if len(of_themselves) and not (len(joined) and joined[0] < of_themselves[0]):
        return [int(of_themselves[0])]
    if not len(joined):
        return []
    start = int(joined[0])
    order, before = breadth_first_order(waits, start, directed=True, return_predecessors=True)
    closing = set(rows[dependencies == start].tolist())
    row = next(int(row) for row in order if int(row) in closing)
    path = [row]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]
