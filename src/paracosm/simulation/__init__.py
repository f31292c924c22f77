"""Jobs in virtual time, compiled: graphs, ranks of a job, parameter servers, schedules."""

from paracosm.simulation.replay import replay_job

__all__ = ["replay_job"]
