"""A whole job: programs of ranks, communicators, and the task graph that they come to."""

from paracosm.jobs.columns import Codebook
from paracosm.jobs.job import POLICIES, Communicators, Job
from paracosm.jobs.program import KINDS, STEPS, Program
from paracosm.jobs.tasks import TaskGraph
from paracosm.jobs.writer import ProgramWriter, write_communicators, write_job

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
