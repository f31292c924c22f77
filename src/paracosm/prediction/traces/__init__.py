"""Replays of traces of real jobs, unchanged and with changes."""

from paracosm.prediction.traces.run import replay_traces, summarise_replays

__all__ = ["replay_traces", "summarise_replays"]
