"""Data sets, and how they are divided among workers."""

from paracosm.training.data.dataset import DataSet
from paracosm.training.data.load import DATA_SETS, load_data
from paracosm.training.data.shards import BatchSampler, check_scheme, make_shards

__all__ = ["DATA_SETS", "BatchSampler", "DataSet", "check_scheme", "load_data", "make_shards"]
