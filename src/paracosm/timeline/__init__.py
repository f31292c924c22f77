"""Who did what, when: spans and counters in virtual time, for Perfetto and for summaries."""

from paracosm.timeline.check import check
from paracosm.timeline.summary import busy_time, covered, overlap, utilisation
from paracosm.timeline.timeline import Counter, Span, Timeline
from paracosm.timeline.trace import write_trace

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
