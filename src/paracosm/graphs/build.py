"""A graph from nodes as a recorder or an importer meets them, one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.graphs.assemble import Columns, Lists, assemble
from paracosm.graphs.check import node_label
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.op import Op

__all__ = ["Node", "build_graph"]


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph, which other nodes name by its id.

    Attributes:
        id: not negative; ids ascend in the order in which ops are issued.
        op: what it does.
        name: its place in the model, "layer1.0.conv1".
        phase: one of `PHASES`.
        resource: what it keeps busy, one of `RESOURCES`.
        dependencies: ids of the nodes that must end before it begins.
        group: ranks that communicate, in order; empty for nodes that do not.
        duration: seconds; NaN where it is not known.
        allocates: (bytes, id of the last node that uses it) of every storage that it allocates; the
            id is -1 where the storage outlives the graph.
    """

    id: int
    op: Op
    name: str = ""
    phase: str = "other"
    resource: str = "compute"
    dependencies: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    duration: float = math.nan
    allocates: tuple[tuple[int, int], ...] = ()


def build_graph(
    nodes: Iterable[Node],
    resident: Mapping[str, int] = MappingProxyType({}),
    provenance: Mapping[str, Any] = MappingProxyType({}),
    where: str = "graph",
    before: Sequence[tuple[int, int]] = (),
) -> Graph:
    """Return the graph of `nodes`, which may come in any order.

    Args:
        nodes: one for each row.
        resident: bytes that are held throughout, by what they are.
        provenance: where the graph comes from; plain JSON.
        where: the file or the like, for messages.
        before: (bytes, id of the last node that uses it) of the storages that were there before
            and that are not resident.

    Raises:
        InputError: phases or resources that are unknown, ids that repeat or are not there,
            dependencies in a cycle or on nodes that are issued later; with the node.
    """
    ops: dict[Op, int] = {}
    names: dict[str, int] = {}
    groups: dict[tuple[int, ...], int] = {}
    phases = {phase: code for code, phase in enumerate(PHASES)}
    resources = {resource: code for code, resource in enumerate(RESOURCES)}
    rows = list(nodes)
    codes = np.empty((5, len(rows)), dtype=np.int32)
    for row, node in enumerate(rows):
        if node.phase not in phases or node.resource not in resources:
            raise _unknown(node, where)
        codes[:, row] = (
            ops.setdefault(node.op, len(ops)),
            names.setdefault(node.name, len(names)),
            phases[node.phase],
            resources[node.resource],
            groups.setdefault(node.group, len(groups)) if node.group else -1,
        )
    try:
        columns = Columns(
            ops=tuple(ops),
            names=tuple(names),
            groups=tuple(groups),
            id=np.array([node.id for node in rows], dtype=np.int64),
            op=codes[0],
            name=codes[1],
            phase=codes[2],
            resource=codes[3],
            group=codes[4],
            duration=np.array([node.duration for node in rows], dtype=np.float64),
            dependencies=_lists([node.dependencies for node in rows]),
            allocates=_lists([[size for size, _ in node.allocates] for node in rows]),
            released_by=_lists([[last for _, last in node.allocates] for node in rows]),
            before=before,
            resident=resident,
            provenance=provenance,
        )
    except OverflowError:
        raise InputError(f"{where}: ids and bytes must be below 2**63") from None
    return assemble(columns, where)


def _unknown(node: Node, where: str) -> InputError:
    label = f"{where}: {node_label(node.id, node.op.name, node.name)}"
    if node.phase not in PHASES:
        return InputError(f"{label}: {unknown('phase', node.phase, PHASES)}")
    return InputError(f"{label}: {unknown('resource', node.resource, RESOURCES)}")


def _lists(lists: Sequence[Sequence[int]]) -> Lists:
    counts = np.array([len(each) for each in lists], dtype=np.int64)
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    values: npt.NDArray[np.int64] = np.array(
        [value for each in lists for value in each], dtype=np.int64
    )
    return Lists(offsets, values)
