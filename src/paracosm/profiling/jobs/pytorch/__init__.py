"""Jobs of PyTorch with parameter servers, over gloo: run, profiled and measured."""

from paracosm.profiling.jobs.pytorch.job import (
    Goodput,
    Job,
    measure_throughput,
    parameter_server_job,
    profile_module,
)
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node

__all__ = [
    "Goodput",
    "Job",
    "JobOptions",
    "Node",
    "measure_throughput",
    "parameter_server_job",
    "profile_module",
]
