"""A whole job: programs of ranks, communicators, and the resulting task graph."""

from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

__all__ = ["Codebook", "ProgramWriter", "write_communicators", "write_job"]
