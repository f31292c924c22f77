"""The unified dataflow graph: what one replica of a job computes, and where graphs come from."""

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.check import check
from paracosm.graphs.file import load_graph, save_graph
from paracosm.graphs.graph import (
    PHASES,
    RESOURCES,
    Graph,
    Op,
    Storages,
    TensorArgument,
    decode_arguments,
    encode_arguments,
)
from paracosm.graphs.summary import fingerprint

__all__ = [
    "PHASES",
    "RESOURCES",
    "Graph",
    "Node",
    "Op",
    "Storages",
    "TensorArgument",
    "build_graph",
    "check",
    "decode_arguments",
    "encode_arguments",
    "fingerprint",
    "load_graph",
    "save_graph",
]
