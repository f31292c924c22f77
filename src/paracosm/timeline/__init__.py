"""Who did what, when: spans and counters in virtual time, their analysis, and Perfetto's files."""

from paracosm.timeline.analysis import (
    breakdown,
    busy_time,
    check,
    covered,
    exposure_between,
    overlap,
    union,
    utilisation,
)
from paracosm.timeline.perfetto import write_trace
from paracosm.timeline.timeline import Labels, Span, Spans, Timeline

__all__ = [
    "Labels",
    "Span",
    "Spans",
    "Timeline",
    "breakdown",
    "busy_time",
    "check",
    "covered",
    "exposure_between",
    "overlap",
    "union",
    "utilisation",
    "write_trace",
]
