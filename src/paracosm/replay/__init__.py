"""Replay: a task graph and its durations to the instants at which everything runs."""

from paracosm.replay.replay import replay
from paracosm.replay.schedule import Schedule

__all__ = ["Schedule", "replay"]
