"""Who did what, when: spans and counters in virtual time, for Perfetto and for summaries."""

from paracosm.timeline.check import check
from paracosm.timeline.perfetto import write_trace
from paracosm.timeline.summary import busy_time, covered, overlap, utilisation
from paracosm.timeline.timeline import Counter, Span, Timeline

__all__ = [
    "Counter",
    "Span",
    "Timeline",
    "busy_time",
    "check",
    "covered",
    "overlap",
    "utilisation",
    "write_trace",
]
