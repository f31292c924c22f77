"""Replay: a task graph and its durations to the instants at which everything runs."""

from paracosm.replay.job import replay_job
from paracosm.replay.job_schedule import JobSchedule
from paracosm.replay.replay import replay
from paracosm.replay.schedule import Schedule

__all__ = ["JobSchedule", "Schedule", "replay", "replay_job"]
