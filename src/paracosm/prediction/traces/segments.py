"""One rank's trace as segments: what its threads and streams did, and what each segment waited for.

The segments cover every instant in which a lane was not waiting for another one. Played again, each
begins as soon as its lane is free and what it comes after has ended: when it began in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.prediction.traces.device import DeviceSegments, Synchronisations, device_segments
from paracosm.prediction.traces.host import HandOver, Host, busy_of, hand_overs, thread_segments
from paracosm.prediction.traces.traced import Segment
from paracosm.timeline.kineto import (
    DeviceSpans,
    KinetoTrace,
    Window,
    backward_threads,
    device_spans,
    steps_of_training,
)

ByThread = dict[int, list[Segment]]


@dataclass(frozen=True, eq=False)
class Segments:
    """What a rank did in a window.

    Attributes:
        segments: in an order of issue.
        marks: those of the loop's thread with which the steps begin.
        last: of the loop's thread; None where the trace has no steps.
        launched: pairs of a call and the span that it launched, in the order of launches.
    """

    segments: list[Segment]
    marks: list[Segment]
    last: Segment | None
    launched: list[tuple[Segment, Segment]]


def segments_of(trace: KinetoTrace, window: Window) -> Segments:
    """Return what a rank did in a window of its trace."""
    spans = device_spans(trace, window)
    steps = steps_of_training(trace)
    device = device_segments(trace, window, spans, steps)
    launches: dict[int, list[int]] = {}
    for number, call in enumerate(spans.call.tolist()):
        if call >= 0:
            launches.setdefault(call, []).append(number)
    queue = np.argsort(spans.launched, kind="stable")
    # What was launched before the window and is not done is first in the driver's queue.
    place = {call: at for at, call in reversed(list(enumerate(spans.call[queue].tolist())))}
    host = Host(
        trace,
        steps,
        device,
        launches,
        place,
        queue.tolist(),
        {},
        Synchronisations(trace, spans, device.of),
    )
    busy = {
        number: busy_of(trace, number, window)
        for number, lane in enumerate(trace.lanes)
        if lane.kind == "thread" and _matters(trace, spans, number)
    }
    overs = hand_overs(trace, window, backward_threads(trace), busy)
    cuts = [step.begin for step in window.steps]
    threads: ByThread = {}
    for number, times in busy.items():
        main = number == window.thread
        end = window.end if main and window.steps else float(times[:, 1].max(initial=window.begin))
        holes = _holes(window, overs, number)
        threads[number] = thread_segments(
            host, number, window.begin, end, holes, cuts if main else ()
        )
    _hand_over(window, overs, threads)
    _number(window, spans, device, threads)
    segments = [*device.segments, *(segment for each in threads.values() for segment in each)]
    main_segments = threads.get(window.thread, [])
    return Segments(
        segments=in_order(segments),
        marks=_first_at(main_segments, cuts),
        last=main_segments[-1] if window.steps and main_segments else None,
        launched=[
            (launch, device.of[number])
            for number in queue.tolist()
            if (launch := host.launched_by.get(int(spans.call[number]))) is not None
        ],
    )


def _number(window: Window, spans: DeviceSpans, device: DeviceSegments, threads: ByThread) -> None:
    """Note for each segment in which step it was done, or launched."""
    begins = np.array([step.begin - 1e-12 for step in window.steps])
    for segments in threads.values():
        for segment in segments:
            segment.iteration = int(np.searchsorted(begins, segment.begin, side="right")) - 1
    for number in np.flatnonzero(spans.call >= 0).tolist():
        iteration = int(np.searchsorted(begins, spans.launched[number], side="right")) - 1
        device.of[number].iteration = device.first[number].iteration = iteration


def _matters(trace: KinetoTrace, spans: DeviceSpans, thread: int) -> bool:
    """Whether a thread has ops or launches something; some only look what is ready."""
    ops = trace.of("op")
    return bool((trace.lane[ops] == thread).any() or (spans.thread == thread).any())


def _holes(window: Window, overs: list[HandOver], thread: int) -> list[tuple[float, float]]:
    """Return when a thread waits for another one to hand something over, or back."""
    if thread == window.thread:
        return [(over.begin, over.end) for over in overs]
    holes, reached = [], window.begin
    for over in overs:
        if thread in over.to:
            holes.append((reached, over.begin))
            reached = over.to[thread]
    return holes


def _hand_over(window: Window, overs: list[HandOver], threads: ByThread) -> None:
    """Let a backward pass begin after the loop's thread has started it, and the loop go on after.

    A thread's segments end, or begin, at the hand-over, because its hole does.
    """
    own = _Edges(threads.get(window.thread, []))
    others = {thread: _Edges(segments) for thread, segments in threads.items()}
    for over in overs:
        starts, goes_on = own.last_before(over.begin), own.first_from(over.end)
        for thread, end in over.to.items():
            first = others[thread].first_from(over.begin)
            last = others[thread].last_before(end)
            if starts is not None and first is not None:
                first.after = [*first.after, starts]
            if goes_on is not None and last is not None:
                goes_on.after = [*goes_on.after, last]


class _Edges:
    """Finds segments of one thread by when they begin and end."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._begin = np.array([segment.begin for segment in segments])
        self._end = np.array([segment.end for segment in segments])

    def last_before(self, time: float) -> Segment | None:
        at = int(np.searchsorted(self._end, time, side="right")) - 1
        return self._segments[at] if at >= 0 else None

    def first_from(self, time: float) -> Segment | None:
        at = int(np.searchsorted(self._begin, time, side="left"))
        return self._segments[at] if at < len(self._segments) else None


def _first_at(segments: list[Segment], times: list[float]) -> list[Segment]:
    edges = _Edges(segments)
    return [segment for time in times if (segment := edges.first_from(time - 1e-12)) is not None]


def in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Return segments by begin, but none before one that it comes after.

    Instants alone do not say: many spans of an old trace take no microsecond, and begin and end
    with what they wait for. Those of each lane come in the order in which they ran.
    """
    before: dict[int, Segment] = {}
    last: dict[str, Segment] = {}
    for segment in segments:
        if segment.lane in last:
            before[id(segment)] = last[segment.lane]
        last[segment.lane] = segment
    done: set[int] = set()
    ordered: list[Segment] = []
    for segment in sorted(segments, key=lambda each: (each.begin, each.end)):
        stack = [segment]
        while stack:
            top = stack[-1]
            if id(top) in done:
                stack.pop()
                continue
            needed = top.after if id(top) not in before else [*top.after, before[id(top)]]
            missing = [each for each in needed if id(each) not in done]
            if missing:
                stack += missing
            else:
                done.add(id(top))
                ordered.append(top)
                stack.pop()
    return ordered
