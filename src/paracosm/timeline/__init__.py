"""Who did what, when: spans and counters in virtual time, their analysis, and Perfetto's files."""

from paracosm.timeline.analysis import union, utilisation
from paracosm.timeline.perfetto import write_trace
from paracosm.timeline.timeline import Labels, Span, Spans, Timeline

__all__ = ["Labels", "Span", "Spans", "Timeline", "union", "utilisation", "write_trace"]
