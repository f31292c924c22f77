"""Jobs of PyTorch with parameter servers, over gloo: run and profiled."""

from paracosm.profiling.jobs.pytorch.job import profile_module
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node

__all__ = ["JobOptions", "Node", "profile_module"]
