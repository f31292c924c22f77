"""The unified dataflow graph: what one replica of a job computes, and readers of other formats."""

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.file import load_graph, save_graph
from paracosm.graphs.graph import Graph, Op
from paracosm.graphs.summary import fingerprint

__all__ = ["Graph", "Node", "Op", "build_graph", "fingerprint", "load_graph", "save_graph"]
