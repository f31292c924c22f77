"""A whole job: programs of ranks, communicators, and the task graph that they come to."""

from paracosm.jobs.job import KINDS, POLICIES, STEPS, Communicators, Job, Program, TaskGraph
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

__all__ = [
    "KINDS",
    "POLICIES",
    "STEPS",
    "Codebook",
    "Communicators",
    "Job",
    "Program",
    "ProgramWriter",
    "TaskGraph",
    "write_communicators",
    "write_job",
]
