"""Analysis of timelines: intervals, utilisation, exposure, bottlenecks, and consistency checks.

A set of intervals is given by its begins and ends, two arrays of shape (n,), in any order; they may
overlap. Whole numbers (picoseconds) give exact results, floats (seconds) exact up to rounding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.timeline.timeline import Span, Timeline

Times = NDArray[Any]  # float64 or int64


def union(begin: Times, end: Times, gap: float = 0) -> tuple[Times, Times]:
    """Return the disjoint intervals, in order, that cover the same instants.

    Touching intervals are joined, and so are those with at most `gap` between them.
    """
    some = end > begin
    begin, _, reached = _in_order(begin[some], end[some])
    if not len(begin):
        return begin, reached
    fresh = begin[1:] > reached[:-1] + gap
    return begin[np.append(True, fresh)], reached[np.append(fresh, True)]


def covered(begin: Times, end: Times) -> float:
    """Return the length of the union of intervals; 0 where there are none."""
    begin, end, reached = _in_order(begin, end)
    fresh = np.maximum(begin[1:], reached[:-1])  # where an interval adds something new
    length = (end[:1] - begin[:1]).sum() + np.maximum(end[1:] - fresh, 0).sum()
    return length.item()  # type: ignore[no-any-return]


def covered_before(begin: Times, end: Times, times: Floats) -> Floats:
    """Return for each of the `times` how much of the time before it some interval covers."""
    begin, end = union(begin, end)
    if not len(begin):
        return np.zeros(len(times))
    reached = np.cumsum(end - begin)
    # Between the ends of intervals, the covered time is piecewise linear.
    lengths = np.column_stack([np.append(0.0, reached[:-1]), reached])
    covered: Floats = np.interp(times, np.column_stack([begin, end]).ravel(), lengths.ravel())
    return covered


def _in_order(begin: Times, end: Times) -> tuple[Times, Times, Times]:
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    return begin, end, np.maximum.accumulate(end)


def breakdown(
    parts: Iterable[tuple[str, Times, Times]], begin: float, end: float, rest: str
) -> dict[str, float]:
    """Return how the time from `begin` to `end` divides: each instant belongs to one part.

    Args:
        parts: name, begins and ends of intervals. Where several overlap, the first part has the
            instant. A name may occur several times.
        begin, end: of the whole.
        rest: name of what none of the parts covers.

    Returns:
        Length by name; they add up to the whole.
    """
    totals: dict[str, float] = {}
    taken: tuple[Times, Times] | None = None  # by the parts so far, as disjoint intervals
    reached: float = 0
    for name, since, until in parts:
        spans = np.clip(since, begin, end), np.clip(until, begin, end)
        taken = union(*(spans if taken is None else map(np.append, taken, spans)))
        length = (taken[1] - taken[0]).sum().item()
        totals[name] = totals.get(name, 0) + (length - reached)
        reached = length
    totals[rest] = totals.get(rest, 0) + (end - begin - reached)
    return totals


def largest_share(parts: Mapping[str, float], whole: float) -> tuple[str, float]:
    """Return the largest part, of equal ones the first, and its share of the whole."""
    name = max(parts, key=lambda part: parts[part])
    return name, parts[name] / whole


@dataclass(frozen=True)
class Exposure:
    """Communication and waiting in k stretches of time, seconds, shape (k,)."""

    exposed: Floats  # communication under way and a wait
    hidden: Floats  # communication under way, no wait
    other: Floats  # a wait, no communication under way


def exposure_between(begin: Floats, end: Floats, communication: Floats, waits: Floats) -> Exposure:
    """Return how communication and waiting overlap in stretches of time.

    Args:
        begin, end: of the stretches, shape (k,), seconds.
        communication: begin and end of each operation, shape (n, 2), seconds.
        waits: begin and end of each wait, shape (m, 2), seconds; they may overlap.
    """
    under_way, waited = (
        _covered_between(begin, end, intervals) for intervals in (communication, waits)
    )
    # Of two sets of instants: what both hold is what each holds less what one of them holds.
    either = _covered_between(begin, end, np.concatenate([communication, waits]))
    both = np.clip(under_way + waited - either, 0.0, np.minimum(under_way, waited))
    return Exposure(exposed=both, hidden=under_way - both, other=waited - both)


def exposed_of_each(communication: Floats, waits: Floats) -> Floats:
    """Return the exposed seconds of each operation, shape (n,); the rest of it is hidden."""
    begin, end = communication.T
    return np.clip(_covered_between(begin, end, waits), 0.0, end - begin)


def _covered_between(begin: Floats, end: Floats, spans: Floats) -> Floats:
    since, until = spans.T
    return covered_before(since, until, end) - covered_before(since, until, begin)


def utilisation(timeline: Timeline, until: float) -> dict[tuple[str, str], float]:
    """Return for each (node, resource) the fraction of the time from 0 to `until` it was busy.

    Raises:
        InputError: `until` is not above 0.
    """
    if not until > 0:
        raise InputError(f"utilisation needs a time span: until must be above 0, not {until}")
    return {key: busy / until for key, busy in busy_time(timeline, until).items()}


def busy_time(timeline: Timeline, until: float) -> dict[tuple[str, str], float]:
    """Return for each (node, resource) the seconds from 0 to `until` in which it was busy.

    Times in which several spans of a resource are open count once; keys are in the order of first
    appearance.
    """
    return {key: covered(*spans) for key, spans in _by_resource(timeline, until).items()}


def overlap(
    timeline: Timeline,
    until: float,
    first: str = "compute",
    others: Iterable[str] = ("send", "receive"),
) -> dict[str, float]:
    """Return for each node the seconds in which `first` and at least one of `others` were busy.

    By default: how much of its communication a node hides behind its computation.
    """
    by_resource, none = _by_resource(timeline, until), np.empty((2, 0))
    others, hidden = [other for other in others if other != first], {}
    for node in dict.fromkeys(node for node, _ in by_resource):
        intervals = by_resource.get((node, first), none)
        rest = np.hstack([none, *(by_resource.get((node, other), none) for other in others)])
        hidden[node] = covered(*intervals) + covered(*rest) - covered(*np.hstack([intervals, rest]))
    return hidden


def _by_resource(timeline: Timeline, until: float) -> dict[tuple[str, str], Floats]:
    """Return begins and ends by (node, resource), clipped to the time from 0 to `until`."""
    spans, rows = timeline.spans, dict[tuple[str, str], list[int]]()
    for row, key in enumerate(zip(spans.node.tolist(), spans.resource.tolist(), strict=True)):
        rows.setdefault(key, []).append(row)
    times = np.clip(np.stack([spans.begin, spans.end]), 0.0, until)
    return {key: times[:, own] for key, own in rows.items()}


def check(
    timeline: Timeline, exclusive: Iterable[str] = ("compute", "send", "receive")
) -> list[str]:
    """Return a sentence for everything that is wrong with `timeline`; none if it is consistent.

    A span has finite times and does not end before it begins. Spans of an `exclusive` resource of
    one node do not overlap, to the nanosecond (times are sums of floats). A message has one send
    and one receive span; the receive does not begin before the send.
    """
    spans = list(timeline.spans)
    return [*_times(spans), *_overlaps(spans, set(exclusive)), *_messages(spans)]


def _times(spans: Sequence[Span]) -> Iterable[str]:
    for span in spans:
        if not (isfinite(span.begin) and isfinite(span.end)):
            yield f"{_text(span)}: a time is not finite"
        elif span.end < span.begin:
            yield f"{_text(span)}: it ends before it begins"


def _overlaps(spans: Sequence[Span], exclusive: set[str]) -> Iterable[str]:
    last: dict[tuple[str, str], Span] = {}
    # A span without duration takes no part of the resource, wherever it lies.
    busy = (span for span in spans if span.resource in exclusive and span.begin < span.end)
    for span in sorted(busy, key=lambda span: (span.begin, span.end)):
        before = last.get(span[:2])
        if before and round(span.begin * 1e9) < round(before.end * 1e9):
            yield f"{_text(span)} overlaps {_text(before)}"
        if not before or span.end > before.end:
            last[span[:2]] = span


def _messages(spans: Sequence[Span]) -> Iterable[str]:
    ends: dict[int, tuple[list[Span], list[Span]]] = {}
    for span in spans:
        if span.flow >= 0:
            ends.setdefault(span.flow, ([], []))[span.resource == "receive"].append(span)
    for flow, (sends, receives) in ends.items():
        if len(sends) != 1 or len(receives) != 1:
            count = f"{len(sends)} send and {len(receives)} receive spans"
            yield f"message {flow} has {count}, not one of each"
        elif receives[0].begin < sends[0].begin:
            yield f"message {flow} is received before it is sent: {_text(receives[0])}"


def _text(span: Span) -> str:
    return f"{span.node} {span.resource} {span.name!r} [{span.begin}, {span.end}]"
