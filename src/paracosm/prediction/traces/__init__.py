"""Traces of real jobs, played again, unchanged and with something changed."""

from paracosm.prediction.traces.job import job_of_traces, read_job
from paracosm.prediction.traces.run import Replays, Scenario, replay_traces, summarise_replays
from paracosm.prediction.traces.traced import TracedJob, TracedRank

__all__ = [
    "Replays",
    "Scenario",
    "TracedJob",
    "TracedRank",
    "job_of_traces",
    "read_job",
    "replay_traces",
    "summarise_replays",
]
