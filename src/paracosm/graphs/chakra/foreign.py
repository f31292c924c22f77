"""Chakra traces of others as graphs.

Data and control dependencies count alike. Durations are whole microseconds; 0 means that nobody
measured. What nodes do: see `chakra.meaning`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.chakra.meaning import ends_of, op_of, resources_of
from paracosm.graphs.chakra.order import issue_order
from paracosm.graphs.chakra.trace import Trace, TraceNode
from paracosm.graphs.graph import Graph

__all__ = ["graph_of_others"]


def graph_of_others(
    trace: Trace, where: str, drop_missing: bool = False, data_only: bool = False
) -> Graph:
    """Return the graph of a trace that another program wrote.

    Ids that do not ascend in the order of issue (by dependencies, then start time, then id) are
    replaced by positions in it; provenance says so, and what was dropped.

    Args:
        trace: the trace.
        where: its file, for messages.
        drop_missing: leave out dependencies on nodes that are not there, instead of refusing.
        data_only: leave out control dependencies.

    Raises:
        InputError: no nodes, ids that repeat, dependencies on nodes that are not there, cycles.
    """
    nodes = trace.nodes
    if not nodes:
        raise InputError(f"{where}: a Chakra trace without nodes")
    _refuse_repeats(nodes, where)
    wanted, dropped = _dependencies(nodes, where, drop_missing, data_only)
    hint = "" if data_only else "; --data-only leaves out control dependencies"
    order = issue_order(nodes, wanted, where, hint)
    ids = [node.id for node in order]
    renumbered = ids[-1] >= 2**63 or any(one > other for one, other in pairwise(ids))
    number = {old: row if renumbered else old for row, old in enumerate(ids)}
    resources = resources_of(nodes)
    provenance = {
        "source": "Chakra execution trace",
        "file": Path(where).name,
        "version": trace.version,
        "renumbered": renumbered,
        "dropped_dependencies": dropped,
        "control_dependencies": not data_only,
        "trace": {
            key: value
            for key, value in trace.attributes.items()
            if isinstance(value, str | int | float | bool)
        },
    }
    return build_graph(
        [_node(node, resources[node.id], wanted[node.id], number) for node in order],
        provenance=provenance,
        where=where,
    )


def _node(
    node: TraceNode, resource: str, dependencies: Sequence[int], number: dict[int, int]
) -> Node:
    op = op_of(node, resource)
    return Node(
        id=number[node.id],
        op=op,
        name="" if op.name == node.name else node.name,
        resource=resource,
        dependencies=tuple(number[before] for before in dependencies),
        group=ends_of(node),
        duration=node.duration / 1e6 if node.duration else math.nan,
    )


def _refuse_repeats(nodes: Sequence[TraceNode], where: str) -> None:
    met: dict[int, str] = {}
    for node in nodes:
        if node.id in met:
            raise InputError(
                f"{where}: two nodes have the id {node.id}: {met[node.id]}, {node.name}"
            )
        met[node.id] = node.name


def _dependencies(
    nodes: Sequence[TraceNode], where: str, drop_missing: bool, data_only: bool
) -> tuple[dict[int, list[int]], int]:
    """Return the ids that each id waits for, and how many others are not in the file."""
    there = {node.id for node in nodes}
    present: dict[int, list[int]] = {}
    missing: list[tuple[TraceNode, int]] = []
    for node in nodes:
        wanted = dict.fromkeys(node.data_deps if data_only else node.data_deps + node.ctrl_deps)
        missing += [(node, each) for each in wanted if each not in there]
        present[node.id] = [each for each in wanted if each in there]
    if missing and not drop_missing:
        node, each = missing[0]
        many = f"{len(missing)} dependencies are" if len(missing) > 1 else "1 dependency is"
        raise InputError(
            f"{where}: {many} on nodes that are not in the file, the first of node {node.id} "
            f"({node.name}) on {each}; --drop-missing leaves them out"
        )
    return present, len(missing)
