"""An order of issue for a trace whose ids are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paracosm.graphs.chakra.trace import TraceNode
from paracosm.graphs.check import node_label
from paracosm.graphs.ordering import in_issue_order

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
    order = in_issue_order(
        [[rows[before] for before in dependencies[node.id]] for node in nodes],
        [(node.start, node.id) for node in nodes],
        lambda row: node_label(nodes[row].id, nodes[row].name),
        where,
        hint,
    )
    return [nodes[row] for row in order]
