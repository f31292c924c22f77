"""Profiles of whole jobs: one worker and its parameter servers, op by op."""

from paracosm.profiling.jobs.file import load_job_profile, save_job_profile
from paracosm.profiling.jobs.job_profile import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile

__all__ = [
    "DOWNLINK",
    "SERVER",
    "UPLINK",
    "WORKER",
    "JobProfile",
    "load_job_profile",
    "save_job_profile",
]
