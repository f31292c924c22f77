"""A graph from columns whose rows stand in any order and name each other by their ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.check import check, node_label
from paracosm.graphs.graph import Graph, Storages
from paracosm.graphs.numbering import numbered
from paracosm.graphs.op import Op

__all__ = ["Columns", "Lists", "assemble"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lists:
    """A list of integers for every row: `values[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    values: Ints

    def in_order(self, order: Ints) -> Lists:
        """Return the lists of the rows `order`, in this order."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        shift = self.offsets[:-1][order] - offsets[:-1]
        return Lists(offsets, self.values[np.arange(offsets[-1]) + np.repeat(shift, counts)])

    @property
    def rows(self) -> Ints:
        """The row that every value belongs to."""
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

    Raises:
        InputError: ids that are not there, and all that `check` refuses.
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
        resident={what: int(held) for what, held in sorted(columns.resident.items())},
        provenance=_plain(columns.provenance, where),
    )
    check(graph, where)
    return graph


def _refuse_repeats(ids: Ints, label: Callable[[int], str], where: str) -> None:
    if len(same := np.flatnonzero(np.diff(ids) == 0)):
        one = int(same[0])
        raise InputError(f"{where}: {label(one)} and {label(one + 1)} have the same id")


def _rows_of(
    ids: Ints, wanted: Ints, owners: Ints, label: Callable[[int], str], where: str, verb: str
) -> Ints:
    """Return the rows that have the ids `wanted`, which the rows `owners` name."""
    rows = np.searchsorted(ids, wanted)
    found = (rows < len(ids)) & (ids[np.minimum(rows, len(ids) - 1)] == wanted)
    if len(missing := np.flatnonzero(~found)):
        owner = int(owners[missing[0]])
        who = label(owner) if owner >= 0 else "a storage from before the graph"
        raise InputError(f"{where}: {who} {verb} node {wanted[missing[0]]}, which is not there")
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
    if len(wrong := np.flatnonzero(np.diff(sizes.offsets) != np.diff(released.offsets))):
        row = int(wrong[0])
        raise InputError(
            f"{where}: {label(row)} allocates {np.diff(sizes.offsets)[row]} storages, and "
            f"{np.diff(released.offsets)[row]} nodes are named to release them"
        )
    before = np.array(columns.before, dtype=np.int64).reshape(-1, 2)
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
