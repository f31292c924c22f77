"""Jobs of PyTorch, with parameter servers or without, over gloo: run, profiled and recorded."""

from paracosm.profiling.jobs.pytorch.job import (
    Goodput,
    Job,
    parameter_server_job,
    profile_module,
    train_module,
)
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node
from paracosm.profiling.jobs.pytorch.recorded import RecordedRun, load_run

__all__ = [
    "Goodput",
    "Job",
    "JobOptions",
    "Node",
    "RecordedRun",
    "load_run",
    "parameter_server_job",
    "profile_module",
    "train_module",
]
