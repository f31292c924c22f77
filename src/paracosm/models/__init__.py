"""Models, data sets and optimizers by name, and the user's own: one registry for all commands.

Names are known without PyTorch, which is imported where something is built.
"""

from paracosm.models.data_sets import DataSet, load_data
from paracosm.models.registry import MODELS, Workload, built_in

__all__ = ["MODELS", "DataSet", "Workload", "built_in", "load_data"]
