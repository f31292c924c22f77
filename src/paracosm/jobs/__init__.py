"""A whole job: programs of ranks, communicators, and the resulting task graph."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

__all__ = ["Codebook", "ProgramWriter", "write_communicators", "write_job"]

__getattr__ = exported_from(
    __name__,
    {
        "writer": (
            "Codebook",
            "ProgramWriter",
            "write_communicators",
            "write_job",
        ),
    },
)
