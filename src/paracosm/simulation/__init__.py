"""Jobs in virtual time, compiled: graphs, ranks of a job, parameter servers, schedules."""

from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule

__all__ = ["JobSchedule", "replay_job"]
