"""Models, data sets and optimizers by name, and the user's own: one registry for every door.

Names are known without PyTorch, which is imported where something is built.
"""

from paracosm.models.data_sets import DATA_SETS, DataSet, check_trainable, load_data
from paracosm.models.optimizers import OPTIMIZERS, Optimizer, parse_optimizer
from paracosm.models.registry import MODELS, BuiltIn, Model, Workload, built_in, canonical

__all__ = [
    "DATA_SETS",
    "MODELS",
    "OPTIMIZERS",
    "BuiltIn",
    "DataSet",
    "Model",
    "Optimizer",
    "Workload",
    "built_in",
    "canonical",
    "check_trainable",
    "load_data",
    "parse_optimizer",
]
