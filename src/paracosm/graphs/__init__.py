"""The unified dataflow graph: what one replica of a job computes, and readers of other formats."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.graphs.build import Node, build_graph
    from paracosm.graphs.file import load_graph, save_graph
    from paracosm.graphs.graph import Graph, Op
    from paracosm.graphs.summary import fingerprint

__all__ = ["Graph", "Node", "Op", "build_graph", "fingerprint", "load_graph", "save_graph"]

__getattr__ = exported_from(
    __name__,
    {
        "build": (
            "Node",
            "build_graph",
        ),
        "file": (
            "load_graph",
            "save_graph",
        ),
        "graph": (
            "Graph",
            "Op",
        ),
        "summary": ("fingerprint",),
    },
)
