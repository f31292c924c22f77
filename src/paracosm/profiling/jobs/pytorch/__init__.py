"""Jobs of PyTorch with parameter servers, over gloo: run and profiled."""

from paracosm.profiling.jobs.pytorch.job import Goodput, Job, profile_module, started
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node

__all__ = ["Goodput", "Job", "JobOptions", "Node", "profile_module", "started"]
