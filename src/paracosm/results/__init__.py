"""What comes out of a run, typed: one summary for each kind of run."""

from paracosm.results.json_object import JsonObject, to_builtin, to_json
from paracosm.results.summaries import (
    SUMMARIES,
    EmulationSummary,
    FailureSummary,
    Interval,
    IterationSummary,
    JobSummary,
    OpLatenciesSummary,
    ProfileSummary,
    RelaxationSummary,
    ReplaySummary,
    Summary,
    ThroughputRow,
    ThroughputSummary,
    TrainingSummary,
    TuningSummary,
    read_summary,
)

__all__ = [
    "SUMMARIES",
    "EmulationSummary",
    "FailureSummary",
    "Interval",
    "IterationSummary",
    "JobSummary",
    "JsonObject",
    "OpLatenciesSummary",
    "ProfileSummary",
    "RelaxationSummary",
    "ReplaySummary",
    "Summary",
    "ThroughputRow",
    "ThroughputSummary",
    "TrainingSummary",
    "TuningSummary",
    "read_summary",
    "to_builtin",
    "to_json",
]
