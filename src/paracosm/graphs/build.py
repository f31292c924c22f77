"""A graph from nodes in the order of a recorder or an importer."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.errors import InputError, unknown
from paracosm.graphs.check import check, node_label
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, Storages, numbered
from paracosm.units import whole


class Node(NamedTuple):
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
    if not isinstance(resident, Mapping) or not all(isinstance(kind, str) for kind in resident):
        raise InputError(f"{where}: resident bytes are a mapping from what they are of")
    ops: dict[Op, int] = {}
    names: dict[str, int] = {}
    groups: dict[tuple[int, ...], int] = {}
    phases = {phase: code for code, phase in enumerate(PHASES)}
    resources = {resource: code for code, resource in enumerate(RESOURCES)}
    rows = list(nodes)
    coded = list[tuple[int, ...]]()
    try:
        for node in rows:
            if node.phase not in phases or node.resource not in resources:
                raise _unknown(node, where)
            coded.append(
                (
                    ops.setdefault(node.op, len(ops)),
                    names.setdefault(node.name, len(names)),
                    phases[node.phase],
                    resources[node.resource],
                    groups.setdefault(tuple(node.group), len(groups)) if len(node.group) else -1,
                )
            )
        duration = np.array([node.duration for node in rows], dtype=np.float64)
        dependencies = [list(node.dependencies) for node in rows]
        allocates = [[size for size, _ in node.allocates] for node in rows]
        released_by = [[last for _, last in node.allocates] for node in rows]
    except InputError:
        raise
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: a node has a name, seconds, ids that it depends on, ranks that communicate, "
            f"and pairs of bytes and an id that it allocates, unlike {node!r}"
        ) from None
    codes = np.array(coded, dtype=np.int32).reshape(-1, 5).T
    columns = Columns(
        ops=tuple(ops),
        names=tuple(names),
        groups=tuple(groups),
        id=whole_numbers([node.id for node in rows], f"{where}: ids"),
        op=codes[0],
        name=codes[1],
        phase=codes[2],
        resource=codes[3],
        group=codes[4],
        duration=duration,
        dependencies=_lists(dependencies, f"{where}: dependencies"),
        allocates=_lists(allocates, f"{where}: bytes that a node allocates"),
        released_by=_lists(released_by, f"{where}: ids of nodes that use a storage last"),
        before=before,
        resident=resident,
        provenance=provenance,
    )
    return assemble(columns, where)


def whole_numbers(values: Sequence[Any], what: str) -> Ints:
    """Return `values` as integers; InputError for what an array would round, cut off or read."""
    numbers = np.asarray(values)
    if not len(values) or numbers.dtype.kind == "i":
        return numbers.astype(np.int64)
    exact = [whole(value) for value in values]
    wrong = [place for place, number in enumerate(exact) if number is None]
    if wrong:
        raise InputError(f"{what} must be whole numbers, not {values[wrong[0]]!r}")
    try:
        return np.array(exact, dtype=np.int64)
    except OverflowError:
        raise InputError(f"{what} must be below 2**63") from None


def _unknown(node: Node, where: str) -> InputError:
    label = f"{where}: {node_label(node.id, node.op.name, node.name)}"
    if node.phase not in PHASES:
        return InputError(f"{label}: {unknown('phase', node.phase, PHASES)}")
    return InputError(f"{label}: {unknown('resource', node.resource, RESOURCES)}")


def _lists(lists: Sequence[Sequence[int]], what: str) -> "Lists":
    counts = np.array([len(items) for items in lists], dtype=np.int64)
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    values = [value for items in lists for value in items]
    return Lists(offsets, whole_numbers(values, what))


@dataclass(frozen=True)
class Lists:
    """A list of integers for every row: `values[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    values: Ints

    def in_order(self, order: Ints) -> "Lists":
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        shift = self.offsets[:-1][order] - offsets[:-1]
        return Lists(offsets, self.values[np.arange(offsets[-1]) + np.repeat(shift, counts)])

    @property
    def rows(self) -> Ints:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True)
class Columns:
    """Nodes as a recorder or a file has them: those of `Graph`, but for the last four.

    Attributes:
        dependencies: ids of the nodes that each one waits for.
        allocates: bytes of the storages that each node allocates.
        released_by: as many ids of the nodes that use those last; -1 where they outlive the graph.
        before: bytes and id of the last user (or -1) of the storages that were there before.
    """

    ops: Sequence[Op]
    names: Sequence[str]
    groups: Sequence[tuple[int, ...]]
    id: Ints
    op: Codes
    name: Codes
    phase: Codes
    resource: Codes
    group: Codes
    duration: Floats
    dependencies: Lists
    allocates: Lists
    released_by: Lists
    before: Sequence[tuple[int, int]] = ()
    resident: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def assemble(columns: Columns, where: str) -> Graph:
    """Return the graph, the same to the bit whatever the order of the rows.

    Rows are sorted by id; distinct ops, names and groups are numbered as they occur; dependencies
    ascend, each but once.
    """
    order = np.argsort(columns.id, kind="stable")
    ids = columns.id[order]
    ops, op = numbered(columns.ops, columns.op[order])
    names, name = numbered(columns.names, columns.name[order])
    groups, group = numbered(columns.groups, columns.group[order])

    def label(row: int) -> str:
        return node_label(int(ids[row]), ops[op[row]].name, names[name[row]])

    _refuse_repeats(ids, label, where)
    dependencies = _dependencies(ids, columns.dependencies.in_order(order), label, where)
    kinds = sorted(columns.resident)
    held = whole_numbers([columns.resident[kind] for kind in kinds], f"{where}: resident bytes")
    graph = Graph(
        ops=ops,
        names=names,
        groups=groups,
        id=ids,
        op=op,
        name=name,
        phase=columns.phase[order],
        resource=columns.resource[order],
        group=group,
        duration=columns.duration[order],
        offsets=dependencies.offsets,
        dependencies=dependencies.values,
        storages=_storages(ids, columns, order, label, where),
        resident=dict(zip(kinds, held.tolist(), strict=True)),
        provenance=_plain(columns.provenance, where),
    )
    check(graph, where)
    return graph


def _refuse_repeats(ids: Ints, label: Callable[[int], str], where: str) -> None:
    for one in np.flatnonzero(np.diff(ids) == 0)[:1].tolist():
        raise InputError(f"{where}: {label(one)} and {label(one + 1)} have the same id")


def _rows_of(
    ids: Ints, wanted: Ints, owners: Ints, label: Callable[[int], str], where: str, verb: str
) -> Ints:
    rows = np.searchsorted(ids, wanted)
    exists = (rows < len(ids)) & (ids[np.minimum(rows, len(ids) - 1)] == wanted)
    if len(missing := np.flatnonzero(~exists)):
        owner = int(owners[missing[0]])
        who = label(owner) if owner >= 0 else "a storage from before the graph"
        raise InputError(f"{where}: {who} {verb} node {wanted[missing[0]]}, which does not exist")
    return rows.astype(np.int64)


def _dependencies(ids: Ints, lists: Lists, label: Callable[[int], str], where: str) -> Lists:
    owners = lists.rows
    rows = _rows_of(ids, lists.values, owners, label, where, "depends on")
    order = np.lexsort((rows, owners))
    owners, rows = owners[order], rows[order]
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = (owners[1:] != owners[:-1]) | (rows[1:] != rows[:-1])
    counts = np.bincount(owners[fresh], minlength=len(ids))
    return Lists(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), rows[fresh])


def _storages(
    ids: Ints, columns: Columns, order: Ints, label: Callable[[int], str], where: str
) -> Storages:
    sizes, released = columns.allocates.in_order(order), columns.released_by.in_order(order)
    for row in np.flatnonzero(np.diff(sizes.offsets) != np.diff(released.offsets))[:1].tolist():
        raise InputError(
            f"{where}: {label(row)} allocates {np.diff(sizes.offsets)[row]} storages, and "
            f"{np.diff(released.offsets)[row]} nodes are named to release them"
        )
    numbers = [number for storage in columns.before for number in storage]
    before = whole_numbers(numbers, f"{where}: storages from before").reshape(-1, 2)
    first = np.concatenate((np.full(len(before), -1), sizes.rows))
    users = np.concatenate((before[:, 1], released.values))
    last = np.full(len(users), len(ids), dtype=np.int64)
    freed = users != -1
    verb = "allocates what is released by"
    last[freed] = _rows_of(ids, users[freed], first[freed], label, where, verb)
    return Storages(np.concatenate((before[:, 0], sizes.values)), first.astype(np.int64), last)


def _plain(provenance: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return provenance as it comes back from a file."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(provenance)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: provenance must be plain JSON: {error}") from None
    return plain
