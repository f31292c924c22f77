"""Profiles of whole jobs: one worker and its parameter servers, op by op."""

from paracosm.profiling.jobs.file import is_job_profile, load_job_profile, save_job_profile
from paracosm.profiling.jobs.job_profile import (
    DOWNLINK,
    RESOURCES,
    SERVER,
    UPLINK,
    WORKER,
    JobProfile,
    check_job_profile,
)

__all__ = [
    "DOWNLINK",
    "RESOURCES",
    "SERVER",
    "UPLINK",
    "WORKER",
    "JobProfile",
    "check_job_profile",
    "is_job_profile",
    "load_job_profile",
    "save_job_profile",
]
