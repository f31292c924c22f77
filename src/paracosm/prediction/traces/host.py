"""One thread of a rank as segments: calls that launch, calls that wait, and what lies between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paracosm.prediction.traces.device import SHORTEST, DeviceSegments, Synchronisations
from paracosm.prediction.traces.traced import Segment
from paracosm.timeline.kineto import KinetoTrace, Steps, Window

Floats = npt.NDArray[np.float64]
Hole = tuple[float, float]

QUEUE = 1022
"""Launches that the driver takes before it keeps the next caller until one is done: seen in traces
of V100, in which calls become long at 1020 to 1022 launches under way."""


@dataclass(frozen=True, eq=False)
class Host:
    """What all threads of a rank have in common.

    Attributes:
        launches: by row of a call, the numbers of the spans that it launches.
        place: by row of a call, how many spans were launched before.
        queue: numbers of the spans in the order of their launches.
        launched_by: by row of a call, its segment; filled as segments are made.
    """

    trace: KinetoTrace
    steps: Steps
    device: DeviceSegments
    launches: Mapping[int, Sequence[int]]
    place: Mapping[int, int]
    queue: Sequence[int]
    launched_by: dict[int, Segment]
    synchronisations: Synchronisations


def thread_segments(
    host: Host, thread: int, begin: float, end: float, holes: Iterable[Hole], cuts: Iterable[float]
) -> list[Segment]:
    """Return the segments of a thread, which cover all of its time but the holes.

    Args:
        holes: (begin, end) in which it waits for another thread.
        cuts: seconds at which no segment may lie astride.
    """
    between = _Between(host, thread, cuts)
    trace, ends = host.trace, host.trace.end
    items = [(first, -1, last) for first, last in holes]
    items += [
        (float(trace.begin[row]), row, min(float(ends[row]), end))
        for row in _calls(host, thread, begin, end)
    ]
    segments: list[Segment] = []
    at = begin
    for first, row, last in sorted(items):
        if first - at > SHORTEST:
            segments += between.segments(at, first)
        at = max(at, first)
        if row >= 0:
            segments += _call(host, thread, row, at, max(at, last))
        at = max(at, last)
    if end - at > SHORTEST:
        segments += between.segments(at, end)
    return segments


def _calls(host: Host, thread: int, begin: float, end: float) -> Iterable[int]:
    """Yield the rows of the calls of a thread that launch or synchronise, without those within."""
    trace = host.trace
    rows = trace.of("runtime", "other")
    rows = rows[trace.lane[rows] == thread]
    rows = rows[(trace.begin[rows] >= begin) & (trace.begin[rows] <= end)]
    reached = -np.inf
    for row in rows.tolist():
        waits_or_launches = row in host.launches or host.synchronisations.is_one(row)
        if waits_or_launches and trace.begin[row] >= reached:
            reached = float(trace.end[row])
            yield row


def _call(host: Host, thread: int, row: int, begin: float, end: float) -> list[Segment]:
    lane, name = host.trace.lanes[thread].name, host.trace.text(row)
    loading = host.steps.loading.covers(thread, begin)
    work, step = "data loading" if loading else "host", host.steps.of(thread, begin)
    numbers = host.launches.get(row)
    if numbers is None:
        waited = host.synchronisations.waited(row, end)
        begin = max([begin, *(segment.end for segment in waited)])
        return [Segment(begin, max(begin, end), lane, name, work, step, waited)]
    firsts = [host.device.first[number] for number in numbers]
    full = _queue_full(host, row, end)
    begin = max([begin, *(segment.end for segment in full)])
    split = max(begin, min([end, *(host.device.issued[number] for number in numbers)]))
    launch = Segment(begin, split, lane, name, work, step, full)
    host.launched_by[row] = launch
    for segment in firsts:
        segment.after = [*segment.after, launch]
    # A copy from or to pageable memory keeps the host until it is done.
    waited = [
        segment
        for segment in (host.device.of[number] for number in numbers)
        if "Pageable" in segment.name and split < segment.end <= end
    ]
    split = max([split, *(segment.end for segment in waited)])
    if end - split < SHORTEST and not waited:
        return [launch]
    return [launch, Segment(split, max(split, end), lane, name, work, step, waited)]


def _queue_full(host: Host, row: int, end: float) -> list[Segment]:
    """Return the span that must be done before the driver takes a launch, if there are so many."""
    place = host.place[row] - QUEUE
    if place < 0:
        return []
    segment = host.device.of[host.queue[place]]
    return [segment] if segment.end <= end else []


class _Between:
    """Makes the segments of a thread between its calls: one for each outermost op or gap."""

    def __init__(self, host: Host, thread: int, cuts: Iterable[float]) -> None:
        self._host, self._thread = host, thread
        self._cuts = np.unique([*cuts, *host.steps.loading.edges(thread).tolist()])
        trace = host.trace
        rows = trace.of("op")
        rows = rows[trace.lane[rows] == thread]
        reached = np.maximum.accumulate(trace.end[rows])
        outermost = np.concatenate(([True], trace.begin[rows][1:] >= reached[:-1]))[: len(rows)]
        self._ops = rows[outermost]
        self._begin, self._end = trace.begin[self._ops], trace.end[self._ops]

    def segments(self, begin: float, end: float) -> Iterable[Segment]:
        inside = self._cuts[(self._cuts > begin + SHORTEST) & (self._cuts < end - SHORTEST)]
        edges = [begin, *inside.tolist(), end]
        lane = self._host.trace.lanes[self._thread].name
        for first, last in pairwise(edges):
            middle = (first + last) / 2
            loading = self._host.steps.loading.covers(self._thread, middle)
            name = "data loading" if loading else self._name(first, last)
            work = "data loading" if loading else "host"
            step = self._host.steps.of(self._thread, middle)
            yield Segment(first, last, lane, name, work, step)

    def _name(self, begin: float, end: float) -> str:
        """Return the first op that the stretch has a part of, or "between ops"."""
        at = int(np.searchsorted(self._end, begin, side="right"))
        if at < len(self._ops) and self._begin[at] < end:
            return self._host.trace.text(int(self._ops[at]))
        return "between ops"


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HandOver:
    """The loop's thread waits from `begin` to `end`, while threads work, each until its end in
    `to`."""

    begin: float
    end: float
    to: dict[int, float]


def busy_of(trace: KinetoTrace, thread: int, window: Window) -> Floats:
    """Return when a thread has an op or a call open: k x 2 begins and ends that do not overlap."""
    rows = trace.of("op", "runtime", "other")
    rows = rows[trace.lane[rows] == thread]
    rows = rows[(trace.end[rows] >= window.begin) & (trace.begin[rows] <= window.end)]
    if not len(rows):
        return np.empty((0, 2))
    begin, end = trace.begin[rows], np.maximum.accumulate(trace.end[rows])
    fresh = np.flatnonzero(np.concatenate(([True], begin[1:] > end[:-1])))
    last = np.concatenate((fresh[1:], [len(rows)])) - 1
    busy: Floats = np.stack((begin[fresh], end[last]), axis=1)
    return busy.clip(window.begin, window.end)


def hand_overs(
    trace: KinetoTrace, window: Window, backward: set[int], busy: dict[int, Floats]
) -> list[HandOver]:
    """Return the times in which the loop's thread waits for backward passes, in order."""
    own = busy.get(window.thread)
    if own is None or not len(own):
        return []
    opens = np.concatenate(([window.begin], own[:, 1]))
    closes = np.concatenate((own[:, 0], [window.end]))
    found: dict[int, HandOver] = {}
    for thread in sorted(backward & busy.keys()):
        spans = busy[thread]
        gap = np.searchsorted(opens, spans[:, 0], side="right") - 1
        inside = spans[:, 1] <= closes[gap]
        for number in np.unique(gap[inside]).tolist():
            within = spans[inside & (gap == number)]
            first, last = float(within[0, 0]), float(within[-1, 1])
            before = found.get(number)
            found[number] = HandOver(
                begin=first if before is None else min(before.begin, first),
                end=last if before is None else max(before.end, last),
                to={**(before.to if before else {}), thread: last},
            )
    return [found[number] for number in sorted(found)]
