"""From measured op latencies of a GPU, as NeuSight publishes them, to whole models."""

from paracosm.prediction.op_latencies.folder import Comparison, Folder, mean_error, read_folder
from paracosm.prediction.op_latencies.several_comparison import SeveralComparison

__all__ = ["Comparison", "Folder", "SeveralComparison", "mean_error", "read_folder"]
