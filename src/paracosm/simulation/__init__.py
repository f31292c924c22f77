"""Jobs in virtual time, compiled: graphs, ranks of a job, parameter servers, schedules."""

from paracosm.simulation.job_schedule import JobSchedule
from paracosm.simulation.replay_graph import Schedule, replay
from paracosm.simulation.replay_job import replay_job

__all__ = ["JobSchedule", "Schedule", "replay", "replay_job"]
