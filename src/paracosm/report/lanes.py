"""How nodes and their resources are laid out in rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

__all__ = [
    "LANES",
    "PHASES",
    "Lane",
    "Place",
    "laid_out",
    "lane_of",
    "node_group",
    "node_order",
]

PHASES = ("copy", "compute", "update")
"""What a processor of a relaxation does one after the other, where its times tell them apart."""


@dataclass(frozen=True)
class Lane:
    """The place of a resource in its node's row: which of three lanes, how high, what colour."""

    lane: int
    height: float
    color: int


@dataclass(frozen=True)
class Place:
    """Where in its row a resource is drawn: offset of its middle, height, colour."""

    offset: float
    height: float
    color: int


# A node that waits does not compute, so that both share a lane.
LANES = {
    "copy": Lane(0, 0.27, 4),
    "compute": Lane(0, 0.27, 0),
    "update": Lane(0, 0.27, 5),
    "wait": Lane(0, 0.08, 3),
    "send": Lane(1, 0.27, 1),
    "receive": Lane(2, 0.27, 2),
}


def lane_of(resource: str, name: str, phases: Collection[str] = ()) -> str:
    """Return the lane of a span: its resource; its name where computing is told by `phases`."""
    return name if resource == "compute" and name in phases else resource


def laid_out(resources: Iterable[str]) -> dict[str, Place]:
    """Return the places of resources in a row; where they share one lane, it takes the row."""
    lanes = {resource: LANES[resource] for resource in resources}
    alone = len({lane.lane for lane in lanes.values()}) == 1
    return {
        resource: Place(
            offset=0.0 if alone else (lane.lane - 1) * 0.29,
            height=2 * lane.height if alone else lane.height,
            color=lane.color,
        )
        for resource, lane in lanes.items()
    }


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
