"""How nodes and their resources are laid out in rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LANES", "Lane", "lane_offset", "node_group", "node_order"]


@dataclass(frozen=True)
class Lane:
    """The place of a resource in its node's row: which of three lanes, how high, what colour."""

    lane: int
    height: float
    color: int


# A node that waits does not compute, so that both share a lane.
LANES = {
    "compute": Lane(0, 0.27, 0),
    "wait": Lane(0, 0.08, 3),
    "send": Lane(1, 0.27, 1),
    "receive": Lane(2, 0.27, 2),
}


def lane_offset(lane: Lane) -> float:
    """Return how far the middle of a lane is from the middle of its row."""
    return (lane.lane - 1) * 0.29


def node_group(node: str) -> str:
    """Return a node's name without its number: "worker12" is one of the "worker"s."""
    return re.sub(r"[\W_]*\d+$", "", node) or node


def node_order(nodes: Iterable[str]) -> list[str]:
    """Sort nodes, the smaller group (the servers) first, worker2 before worker10."""
    nodes = list(nodes)
    groups = [node_group(node) for node in nodes]
    return sorted(
        nodes,
        key=lambda node: (groups.count(node_group(node)), node_group(node), len(node), node),
    )
