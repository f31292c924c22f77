"""Recorded and modelled schedules of real threads: replay, and a run queue for too few cores."""

from recorded_threads.replay import Replay, replay
from recorded_threads.run_queue import RunQueue, SimulatedRun, simulate_threads

__all__ = ["Replay", "RunQueue", "SimulatedRun", "replay", "simulate_threads"]
