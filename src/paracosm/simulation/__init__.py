"""Jobs in virtual time, compiled: graphs, ranks of a job, parameter servers, schedules."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.simulation.replay import replay_job
    from paracosm.simulation.static import JobSchedule

__all__ = ["JobSchedule", "replay_job"]

__getattr__ = exported_from(
    __name__,
    {
        "replay": ("replay_job",),
        "static": ("JobSchedule",),
    },
)
