"""Who was busy for how long."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.timeline.timeline import Timeline

__all__ = ["busy_time", "covered", "overlap", "utilisation"]

_Intervals = NDArray[np.float64]  # n x 2: begin, end


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
    return {key: covered(*spans.T) for key, spans in _intervals(timeline, until).items()}


def overlap(
    timeline: Timeline,
    until: float,
    first: str = "compute",
    others: Iterable[str] = ("send", "receive"),
) -> dict[str, float]:
    """Return for each node the seconds in which `first` and at least one of `others` were busy.

    By default: how much of its communication a node hides behind its computation.
    """
    others = set(others)
    by_node: dict[str, tuple[list[_Intervals], list[_Intervals]]] = {}
    for (node, resource), spans in _intervals(timeline, until).items():
        own, beside = by_node.setdefault(node, ([], []))
        if resource == first:
            own.append(spans)
        elif resource in others:
            beside.append(spans)
    return {
        node: _union(own) + _union(beside) - _union(own + beside)
        for node, (own, beside) in by_node.items()
    }


def _intervals(timeline: Timeline, until: float) -> dict[tuple[str, str], _Intervals]:
    """Return the spans of each (node, resource), cut to what lies between 0 and `until`."""
    lists: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for node, resource, _, begin, end, _ in timeline.spans:
        lists.setdefault((node, resource), []).append((begin, end))
    return {key: np.clip(np.array(spans), 0.0, until) for key, spans in lists.items()}


def _union(parts: list[_Intervals]) -> float:
    return covered(*np.concatenate(parts).T) if parts else 0.0


def covered(begin: NDArray[np.float64], end: NDArray[np.float64]) -> float:
    """Return the length of the union of spans; 0 where there are none."""
    if not len(begin):
        return 0.0
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reached = np.maximum.accumulate(end)  # the latest end so far
    fresh = np.maximum(begin[1:], reached[:-1])  # where a span adds something new
    return float(end[0] - begin[0] + np.maximum(end[1:] - fresh, 0.0).sum())
