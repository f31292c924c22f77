"""The unified dataflow graph: what one replica of a job computes, and where graphs come from."""

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.check import check
from paracosm.graphs.fingerprint import fingerprint
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Storages
from paracosm.graphs.op import Op, TensorArgument, decode_arguments, encode_arguments
from paracosm.graphs.storage import load_graph, save_graph

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
