"""One rank's trace as segments: what its threads and streams did, and what each segment waited for.

The segments cover every instant in which a lane was not waiting for another one. Played again, each
begins as soon as its lane is free and what it comes after has ended: when it began in the trace.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.jobs.job import STEPS
from paracosm.replays.device import (
    SHORTEST,
    DeviceSegments,
    Synchronisations,
    device_segments,
)
from paracosm.replays.traced import MESSAGE, WORK, Communication, Segment, Segments
from paracosm.timeline.kineto.device import DeviceSpans, device_spans
from paracosm.timeline.kineto.faults import check_device
from paracosm.timeline.kineto.host_communication import host_communication
from paracosm.timeline.kineto.trace import (
    KinetoTrace,
    Steps,
    Window,
    backward_threads,
    steps_of_training,
    window_of,
)

ROUNDED = 1.5e-9  # seconds by which a segment may seem to begin before its step: ends are rounded

ByThread = dict[int, list[Segment]]


def segments_of(trace: KinetoTrace, steps: Sequence[int]) -> Segments:
    """Return what a rank did in its steps of these numbers, or in the whole trace without them.

    Raises:
        InputError: the trace lacks a step or the times of its device, nothing ran in it, or it is
            damaged.
    """
    check_device(trace)
    trace = host_communication(trace)
    window = window_of(trace, steps or None)
    segments, marks, launched = _segments(trace, window)
    if not segments:
        where = "in the steps that are taken" if steps else "in it"
        why = "; ".join(["no op, call or kernel takes time", *trace.notes])
        raise InputError(f"{trace.path}: nothing ran {where}: {why}")
    return _columns(trace, window, segments, marks, launched)


_Launched = list[tuple[Segment, Segment]]  # calls, and what they launched


def _segments(trace: KinetoTrace, window: Window) -> tuple[list[Segment], list[Segment], _Launched]:
    """Return all segments in an order of issue, the marks of steps, and the launches."""
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
    waits = Synchronisations(trace, spans, device)
    host = Host(trace, steps, device, launches, place, queue.tolist(), {}, waits)
    busy = {
        number: busy_of(trace, number, window)
        for number, lane in enumerate(trace.lanes)
        if number == window.thread or (lane.kind == "thread" and _matters(trace, spans, number))
    }
    overs = hand_overs(trace, window, backward_threads(trace), busy)
    met = {} if trace.has_device else waits_for_host_communication(spans, device, busy)
    cuts = [step.begin for step in window.steps]
    threads: ByThread = {}
    for number, times in busy.items():
        main = number == window.thread
        end = window.end if main and window.steps else float(times[:, 1].max(initial=window.begin))
        holes = [
            *_holes(window, overs, number),
            *((wait.begin, wait.until.end) for wait in met.get(number, ())),
        ]
        own_cuts = cuts if main else []
        threads[number] = thread_segments(host, number, window.begin, end, holes, own_cuts)
    _hand_over(window, overs, threads)
    for number, waits_of_thread in met.items():
        edges = _Edges(threads[number])
        for wait in waits_of_thread:
            if (goes_on := edges.first_from(wait.until.end)) is not None:
                goes_on.after = [*goes_on.after, wait.until]
    _number(trace, window, spans, device, threads)
    segments = [*device.segments, *(segment for thread in threads.values() for segment in thread)]
    ordered = in_order(segments)
    main_segments = threads.get(window.thread, [])
    first_from = _Edges(main_segments).first_from
    marks = [mark for cut in cuts if (mark := first_from(cut - ROUNDED)) is not None]
    launched = [
        (launch, device.of[number])
        for number in queue.tolist()
        if (launch := host.launched_by.get(int(spans.call[number]))) is not None
        and trace.has_device  # the host's threads set the pace of what they do themselves
    ]
    if window.steps and main_segments:
        marks.append(main_segments[-1])
    return ordered, marks, launched


_WORK_CODES = {work: code for code, work in enumerate(WORK)}
_STEP_CODES = {step: code for code, step in enumerate(STEPS)}


def _columns(
    trace: KinetoTrace,
    window: Window,
    segments: Sequence[Segment],
    marks: Sequence[Segment],
    launched: _Launched,
) -> Segments:
    lanes: dict[str, int] = {}
    names: dict[str, int] = {}
    lane = [lanes.setdefault(segment.lane, len(lanes)) for segment in segments]
    name = [names.setdefault(_name(segment), len(names)) for segment in segments]
    launches = np.array([(call.row, span.row) for call, span in launched], dtype=np.int64)
    return Segments(
        path=trace.path,
        missing=trace.missing,
        has_device=trace.has_device,
        start=window.begin,
        thread=trace.lane_names[window.thread] if window.thread >= 0 else "start",
        begin=np.array([segment.begin for segment in segments]),
        end=np.array([segment.end for segment in segments]),
        lanes=tuple(lanes),
        names=tuple(names),
        lane=np.array(lane, dtype=np.int32),
        name=np.array(name, dtype=np.int32),
        work=np.array([_WORK_CODES[segment.work] for segment in segments], dtype=np.int32),
        step=np.array([_STEP_CODES[segment.step] for segment in segments], dtype=np.int32),
        iteration=np.array([segment.iteration for segment in segments], dtype=np.int32),
        offsets=np.cumsum([0, *(len(segment.after) for segment in segments)]),
        after=np.array(
            [before.row for segment in segments for before in segment.after], dtype=np.int64
        ),
        marks=np.array([segment.row for segment in marks], dtype=np.int64),
        launches=launches.reshape(-1, 2)[:, 0].copy(),
        spans=launches.reshape(-1, 2)[:, 1].copy(),
        communication=tuple(
            Communication(
                segment.row,
                segment.begin,
                segment.end,
                segment.iteration,
                segment.calls,
                segment.called,
            )
            for segment in segments
            if segment.calls
        ),
    )


def _name(segment: Segment) -> str:
    if not segment.calls:
        return segment.name
    return MESSAGE if segment.calls[0].is_message else segment.calls[0].kind


def _number(
    trace: KinetoTrace,
    window: Window,
    spans: DeviceSpans,
    device: DeviceSegments,
    threads: ByThread,
) -> None:
    """Say which step each segment is of: a span is of the step that launched it, however late.

    Where the trace lacks its call, it is of the step in which it begins, or, if it is before all
    spans of its stream with calls, was launched before the steps. If steps are marked on the
    device, it is of the step in which it begins.
    """
    begins = [step.begin - ROUNDED for step in window.steps]
    for segments in threads.values():
        for segment in segments:
            segment.iteration = bisect_right(begins, segment.begin) - 1
    known = spans.call >= 0
    since = np.where(known & ~window.on_device, spans.launched, trace.begin[spans.row])
    for stream in np.unique(spans.stream).tolist():
        members = np.flatnonzero(spans.stream == stream)
        with_calls = np.flatnonzero(known[members] & ~window.on_device)
        since[members[: with_calls[0] if len(with_calls) else 0]] = -np.inf
    since[spans.earlier] = -np.inf
    for number, time in enumerate(since.tolist()):
        iteration = bisect_right(begins, time) - 1
        device.of[number].iteration = device.first[number].iteration = iteration
    for span, rest in device.rest:
        rest.iteration = span.iteration


def _matters(trace: KinetoTrace, spans: DeviceSpans, thread: int) -> bool:
    """Some threads have neither ops nor launches, and only look what is ready."""
    ops = trace.of("op")
    return bool((trace.lane[ops] == thread).any() or (spans.thread == thread).any())


def _holes(window: Window, overs: "list[HandOver]", thread: int) -> list[tuple[float, float]]:
    """When a thread waits for another one to hand something over, or back."""
    if thread == window.thread:
        return [(over.begin, over.end) for over in overs]
    holes, reached = [], window.begin
    for over in overs:
        if thread in over.to:
            holes.append((reached, over.begin))
            reached = over.to[thread]
    return holes


def _hand_over(window: Window, overs: "list[HandOver]", threads: ByThread) -> None:
    """Order a backward pass after its start by the loop's thread, and the loop after its end."""
    edges = _Edges(threads.get(window.thread, []))
    others = {thread: _Edges(segments) for thread, segments in threads.items()}
    for over in overs:
        starts, goes_on = edges.last_before(over.begin), edges.first_from(over.end)
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
        self._begin = [segment.begin for segment in segments]
        self._end = [segment.end for segment in segments]

    def last_before(self, time: float) -> Segment | None:
        at = bisect_right(self._end, time) - 1
        return self._segments[at] if at >= 0 else None

    def first_from(self, time: float) -> Segment | None:
        at = bisect_left(self._begin, time)
        return self._segments[at] if at < len(self._segments) else None


def in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Return segments by begin, but none before one that it comes after, and number them.

    Instants alone do not say: many spans of an old trace take no microsecond, and begin and end
    with what they wait for. Those of each lane come in the order in which they ran.

    Raises:
        InputError: some wait for each other.
    """
    before: dict[int, Segment | None] = {}
    last: dict[str, Segment] = {}
    for segment in segments:
        before[id(segment)] = last.get(segment.lane)
        last[segment.lane] = segment
    waiting: set[int] = set()
    ordered: list[Segment] = []
    for segment in sorted(segments, key=lambda each: (each.begin, each.end)):
        stack = [segment]
        while stack:
            top = stack[-1]
            if top.row >= 0:
                stack.pop()
                continue
            missing = [segment for segment in top.after if segment.row < 0]
            if (previous := before[id(top)]) is not None and previous.row < 0:
                missing.append(previous)
            if missing:
                if not waiting.isdisjoint(map(id, missing)):
                    raise InputError(f"damaged: spans of {top.lane} wait for each other")
                waiting.add(id(top))
                stack += missing
            else:
                top.row = len(ordered)
                ordered.append(top)
                stack.pop()
    return ordered


Hole = tuple[float, float]

QUEUE = 1022
"""Launches that the driver takes before it keeps the next caller until one is done: seen in traces
of V100, in which calls become long at 1020 to 1022 launches under way."""


@dataclass(frozen=True, eq=False)
class Host:
    """What all threads of a rank have in common."""

    trace: KinetoTrace
    steps: Steps
    device: DeviceSegments
    launches: Mapping[int, Sequence[int]]  # by row of a call, numbers of its spans
    place: Mapping[int, int]  # by row of a call, how many spans were launched before
    queue: Sequence[int]  # numbers of the spans in the order of their launches
    launched_by: dict[int, Segment]  # by row of a call, its segment; filled as segments are made
    synchronisations: Synchronisations


def thread_segments(
    host: Host, thread: int, begin: float, end: float, holes: Iterable[Hole], cuts: Iterable[float]
) -> list[Segment]:
    """The segments cover all but the holes, (begin, end), and none lies astride of a cut."""
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
    lane, name = host.trace.lane_names[thread], host.trace.text(row)
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
    copies = (host.synchronisations.copied(number, end) for number in numbers)
    waited = [copy for copy in copies if copy is not None and split < copy.end]
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


BETWEEN = "between ops"


class _Between:
    """Makes the segments of a thread between its calls: one for each outermost op or gap."""

    def __init__(self, host: Host, thread: int, cuts: Iterable[float]) -> None:
        self._host, self._thread = host, thread
        self._cuts = np.unique([*cuts, *host.steps.loading.edges(thread).tolist()]).tolist()
        trace = host.trace
        rows = trace.of("op")
        rows = rows[trace.lane[rows] == thread]
        reached = np.maximum.accumulate(trace.end[rows])
        outermost = np.concatenate(([True], trace.begin[rows][1:] >= reached[:-1]))[: len(rows)]
        self._ops = rows[outermost]
        self._begin, self._end = trace.begin[self._ops].tolist(), trace.end[self._ops].tolist()
        self._computes = not trace.has_device
        if self._computes:  # each op is a segment, so that it is told from what is between two
            self._cuts = np.unique([*self._cuts, *self._begin, *self._end]).tolist()

    def segments(self, begin: float, end: float) -> Iterable[Segment]:
        low = bisect_right(self._cuts, begin + SHORTEST)
        high = bisect_left(self._cuts, end - SHORTEST)
        edges = [begin, *self._cuts[low:high], end]
        lane = self._host.trace.lane_names[self._thread]
        for first, last in pairwise(edges):
            middle = (first + last) / 2
            loading = self._host.steps.loading.covers(self._thread, middle)
            name = "data loading" if loading else self._name(first, last)
            is_op = self._computes and name != BETWEEN
            work = "data loading" if loading else "compute" if is_op else "host"
            step = self._host.steps.of(self._thread, middle)
            yield Segment(first, last, lane, name, work, step)

    def _name(self, begin: float, end: float) -> str:
        at = bisect_right(self._end, begin)
        if at < len(self._ops) and self._begin[at] < end:
            return self._host.trace.text(int(self._ops[at]))
        return BETWEEN


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
    return np.stack((begin[fresh], end[last]), axis=1).clip(window.begin, window.end)


def hand_overs(
    trace: KinetoTrace, window: Window, backward: set[int], busy: dict[int, Floats]
) -> list[HandOver]:
    """Return the times in which the loop's thread waits for backward passes, in order.

    The thread of the training loop starts the backward pass and waits; autograd's thread runs it.
    Both show in a trace as gaps: what of autograd's lies within a gap of the loop's thread was
    handed over in it.
    """
    busy_spans = busy.get(window.thread)
    if busy_spans is None or not len(busy_spans):
        return []
    opens = np.concatenate(([window.begin], busy_spans[:, 1]))
    closes = np.concatenate((busy_spans[:, 0], [window.end]))
    by_row: dict[int, HandOver] = {}
    for thread in sorted(backward & busy.keys()):
        spans = busy[thread]
        gap = np.searchsorted(opens, spans[:, 0], side="right") - 1
        inside = spans[:, 1] <= closes[gap]
        for number in np.unique(gap[inside]).tolist():
            within = spans[inside & (gap == number)]
            first, last = float(within[0, 0]), float(within[-1, 1])
            before = by_row.get(number)
            by_row[number] = HandOver(
                begin=first if before is None else min(before.begin, first),
                end=last if before is None else max(before.end, last),
                to={**(before.to if before else {}), thread: last},
            )
    return [by_row[number] for number in sorted(by_row)]


@dataclass(frozen=True, slots=True)
class HostWait:
    """A thread has nothing open from `begin` to the end of a collective, or of a message."""

    begin: float
    until: Segment


def waits_for_host_communication(
    spans: DeviceSpans, device: DeviceSegments, busy: Mapping[int, Floats]
) -> dict[int, list[HostWait]]:
    """Return, by thread, what it has waited for between its ops.

    No profiler records the wait. A thread that has nothing open while a collective or a message
    ends that was called before has waited for it, and for the last one of several that end in one
    gap: it calls again as soon as it can. Where that is not so, as much of the gap as lies before
    the end is taken for waiting, and would become shorter with the collective.
    """
    ends = np.array([segment.end for segment in device.of])
    by_end = np.argsort(ends, kind="stable")
    by_thread: dict[int, list[HostWait]] = {}
    for thread, times in busy.items():
        for first, last in zip(times[:-1, 1].tolist(), times[1:, 0].tolist(), strict=True):
            low, high = np.searchsorted(ends[by_end], (first, last), side="right")
            for number in by_end[low:high][::-1].tolist():
                if -np.inf < spans.launched[number] < first:
                    by_thread.setdefault(thread, []).append(HostWait(first, device.of[number]))
                    break
    return by_thread
