"""A whole job: programs of ranks, communicators, and the task graph that they come to."""

from paracosm.graphs.job.columns import Codebook
from paracosm.graphs.job.job import POLICIES, Communicators, Job
from paracosm.graphs.job.program import KINDS, STEPS, Program
from paracosm.graphs.job.tasks import TaskGraph
from paracosm.graphs.job.writer import ProgramWriter, write_communicators, write_job

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
