"""Traces of real jobs, played again, unchanged and with something changed."""

from paracosm.prediction.traces.run import replay_traces, summarise_replays

__all__ = ["replay_traces", "summarise_replays"]
