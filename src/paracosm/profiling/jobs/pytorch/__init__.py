"""Jobs of PyTorch with parameter servers, over gloo: run, profiled and measured."""

from paracosm.profiling.jobs.pytorch.job import (
    Goodput,
    Job,
    JobOptions,
    Node,
    measure_throughput,
    parameter_server_job,
    profile_module,
)

__all__ = [
    "Goodput",
    "Job",
    "JobOptions",
    "Node",
    "measure_throughput",
    "parameter_server_job",
    "profile_module",
]
