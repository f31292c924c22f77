"""Who did what, when: spans and counters in virtual time, their analysis, and Perfetto's files."""

from paracosm.timeline.analysis import (
    Parts,
    breakdown,
    busy_time,
    check,
    covered,
    covered_before,
    exposed_of_each,
    largest_share,
    overlap,
    parts_between,
    union,
    utilisation,
)
from paracosm.timeline.perfetto import write_trace
from paracosm.timeline.timeline import Counter, Counters, Labels, Span, Spans, Timeline

__all__ = [
    "Counter",
    "Counters",
    "Labels",
    "Parts",
    "Span",
    "Spans",
    "Timeline",
    "breakdown",
    "busy_time",
    "check",
    "covered",
    "covered_before",
    "exposed_of_each",
    "largest_share",
    "overlap",
    "parts_between",
    "union",
    "utilisation",
    "write_trace",
]
