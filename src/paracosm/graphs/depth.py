"""The longest chain of nodes that wait for each other."""

from __future__ import annotations

from paracosm.graphs.graph import Graph

__all__ = ["longest_chain"]


def longest_chain(graph: Graph) -> int:
    """Return the number of nodes on the longest path of dependencies."""
    offsets, dependencies = graph.offsets.tolist(), graph.dependencies.tolist()
    depth = [0] * len(graph)
    for row in range(len(graph)):
        waits = dependencies[offsets[row] : offsets[row + 1]]
        depth[row] = 1 + max((depth[before] for before in waits), default=0)
    return max(depth, default=0)
