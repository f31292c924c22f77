"""Who did what, when: spans and counters in virtual time, their analysis, and Perfetto's files."""

from paracosm.timeline.analysis import (
    Exposure,
    breakdown,
    busy_time,
    check,
    covered,
    covered_before,
    exposed_of_each,
    exposure_between,
    largest_share,
    overlap,
    union,
    utilisation,
)
from paracosm.timeline.perfetto import write_trace
from paracosm.timeline.timeline import Counter, Counters, Labels, Span, Spans, Timeline

__all__ = [
    "Counter",
    "Counters",
    "Exposure",
    "Labels",
    "Span",
    "Spans",
    "Timeline",
    "breakdown",
    "busy_time",
    "check",
    "covered",
    "covered_before",
    "exposed_of_each",
    "exposure_between",
    "largest_share",
    "overlap",
    "union",
    "utilisation",
    "write_trace",
]
