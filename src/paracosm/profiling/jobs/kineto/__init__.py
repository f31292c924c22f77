"""Job profiles from Kineto traces of one PyTorch process, with a parameter server added."""

from paracosm.profiling.jobs.kineto.gradients import parameters_of_model
from paracosm.profiling.jobs.kineto.profile import job_profile_of_trace

__all__ = ["job_profile_of_trace", "parameters_of_model"]
