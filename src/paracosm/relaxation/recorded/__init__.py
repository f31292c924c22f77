"""Recorded and modelled schedules of real threads: replay, and a run queue for too few cores."""

from paracosm.relaxation.recorded.replay import Replay, replay
from paracosm.relaxation.recorded.run_queue import RunQueue, SimulatedRun, simulate_threads

__all__ = ["Replay", "RunQueue", "SimulatedRun", "replay", "simulate_threads"]
