"""TensorFlow's graphs and step statistics, read without TensorFlow."""

from paracosm.graphs.importers.tensorflow.graph_def import read_graph_def
from paracosm.graphs.importers.tensorflow.step_ops import read_run_metadata, read_timeline

__all__ = ["read_graph_def", "read_run_metadata", "read_timeline"]
