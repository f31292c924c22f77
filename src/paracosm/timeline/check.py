"""What must hold of a timeline, whoever recorded it."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from paracosm.timeline.timeline import Span, Timeline

__all__ = ["check"]


def check(
    timeline: Timeline, exclusive: Iterable[str] = ("compute", "send", "receive")
) -> list[str]:
    """Return a sentence for everything that is wrong with `timeline`; none when all is well.

    A span has finite times and does not end before it begins. Spans of an `exclusive` resource of
    one node do not overlap, to the nanosecond (times are sums of floats). A message has one send
    and one receive span; the receive does not begin before the send.
    """
    return [*_times(timeline), *_overlaps(timeline, set(exclusive)), *_messages(timeline)]


def _times(timeline: Timeline) -> Iterable[str]:
    for span in timeline.spans:
        if not (isfinite(span[3]) and isfinite(span[4])):
            yield f"{_text(span)}: a time is not finite"
        elif span[4] < span[3]:
            yield f"{_text(span)}: it ends before it begins"


def _overlaps(timeline: Timeline, exclusive: set[str]) -> Iterable[str]:
    last: dict[tuple[str, str], Span] = {}
    # A span without duration takes no part of the resource, wherever it lies.
    busy = (span for span in timeline.spans if span[1] in exclusive and span[3] < span[4])
    for span in sorted(busy, key=lambda span: span[3:5]):
        before = last.get(span[:2])
        if before and round(span[3] * 1e9) < round(before[4] * 1e9):
            yield f"{_text(span)} overlaps {_text(before)}"
        if not before or span[4] > before[4]:
            last[span[:2]] = span


def _messages(timeline: Timeline) -> Iterable[str]:
    ends: dict[int, tuple[list[Span], list[Span]]] = {}
    for span in timeline.spans:
        if span[5] >= 0:
            sends, receives = ends.setdefault(span[5], ([], []))
            (receives if span[1] == "receive" else sends).append(span)
    for flow, (sends, receives) in ends.items():
        if len(sends) != 1 or len(receives) != 1:
            count = f"{len(sends)} send and {len(receives)} receive spans"
            yield f"message {flow} has {count}, not one of each"
        elif receives[0][3] < sends[0][3]:
            yield f"message {flow} is received before it is sent: {_text(receives[0])}"


def _text(span: Span) -> str:
    node, resource, name, begin, end, _ = span
    return f"{node} {resource} {name!r} [{begin}, {end}]"
