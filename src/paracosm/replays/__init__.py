"""Replays of traces of real jobs, unchanged and with changes."""

from paracosm.replays.run import replay_traces, summarise_replays

__all__ = ["replay_traces", "summarise_replays"]
