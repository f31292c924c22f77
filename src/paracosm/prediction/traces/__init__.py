"""Traces of real jobs, played again, unchanged and with something changed."""

from paracosm.prediction.traces.job import job_of_traces, read_job
from paracosm.prediction.traces.run import Replays, Scenario, replay_traces, summarise_replays
from paracosm.prediction.traces.traced import TracedJob, TracedRank
from paracosm.prediction.traces.what_if import WhatIf, parse_what_if

__all__ = [
    "Replays",
    "Scenario",
    "TracedJob",
    "TracedRank",
    "WhatIf",
    "job_of_traces",
    "parse_what_if",
    "read_job",
    "replay_traces",
    "summarise_replays",
]
