"""The streams of a rank as segments: what ran on them, and what delayed it.

A call that launches ends, for what it launches, as soon as that begins. What begins later than its
call ends does so after a *launch latency* if the stream was idle, and after a *gap* if it was not.
"""

import re
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Ints
from paracosm.replays.traced import Segment
from paracosm.timeline.kineto.categories import CATEGORIES
from paracosm.timeline.kineto.communication import ONE_SIDED
from paracosm.timeline.kineto.device import Calls, DeviceSpans, waits_between_streams
from paracosm.timeline.kineto.trace import KinetoTrace, Steps, Window

SHORTEST = 1e-9  # seconds: the resolution of traces; what is shorter is no time at all
_KERNEL = CATEGORIES.index("kernel")


@dataclass(frozen=True, eq=False)
class DeviceSegments:
    """The segments of all streams."""

    segments: list[Segment]
    of: list[Segment]  # the segment of each span
    first: list[Segment]  # what must come after each span's launch: a delay, or its own segment
    issued: list[float]  # seconds at which each span was issued by its call
    rest: list[tuple[Segment, Segment]]  # spans of which a part was cut off, and these parts


def device_segments(
    trace: KinetoTrace, window: Window, spans: DeviceSpans, steps: Steps
) -> DeviceSegments:
    """What launches the segments is still to be put before them."""
    waits = waits_between_streams(trace, spans)
    calls = Calls(trace, spans)
    names = {lane: _name(trace, spans, lane) for lane in set(spans.stream.tolist())}
    free = dict.fromkeys(names, window.begin)
    made = DeviceSegments([], [], [], [], [])
    columns = (
        *(spans.row, spans.call, spans.stream, spans.begin, spans.end, spans.thread),
        *(spans.launched, spans.earlier, trace.category[spans.row] == _KERNEL),
        *(trace.begin[spans.call], trace.end[spans.call]),
    )
    for number, columns_of_span in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        row, call, stream, begin, end, thread, launched, *rest = columns_of_span
        is_earlier, is_kernel, called, returned = rest
        issued = window.begin
        if call >= 0:
            issued = called
            # A call that waits for its copy, and for what was before it, has issued it at once.
            if not keeps_host(trace, row, call) or free[stream] <= issued:
                issued = max(issued, min(returned, begin))
        # The clocks of host and device differ by a microsecond or so: nothing begins before its
        # call, or before what it comes after.
        begin = max(begin, free[stream], issued)
        after = [
            made.of[other]
            for other in waits.get(number, ())
            if other < number and made.of[other].end <= begin
        ]
        ready = max([free[stream], issued, *(segment.end for segment in after)])
        begin = max(begin, ready)
        end = max(end, begin)
        segment = Segment(begin, end, names[stream], trace.text(row), "compute")
        if not is_kernel:
            segment.work = "copy"
        else:
            segment.calls = calls.of(row, call)
            if is_earlier:
                # On another rank it may have ended before the window: it is as long as it was.
                segment.calls = ()
        segment.step = steps.of(thread, launched)
        one_sided = bool(segment.calls) and segment.calls[0].kind == ONE_SIDED
        if one_sided:
            segment.calls = ()
        if segment.calls or one_sided:
            segment.work, segment.step = "communication", "communication"
        if segment.calls and not trace.has_device:
            # Several threads take what was called in its order.
            segment.called = float(trace.begin[row if call < 0 else call])
        late = call >= 0 and issued >= ready
        made.first.append(_delayed(made.segments, segment, after, ready, late))
        made.of.append(segment)
        made.issued.append(issued)
        free[stream] = end
    return made


_BLOCKING_COPY = re.compile(r"(?:cuda|hip|cu)Memcpy(?!.*Async)")


def keeps_host(trace: KinetoTrace, row: int, call: int) -> bool:
    """Whether a call returns only when the copy in a row, which it has launched, is done."""
    return "Pageable" in trace.text(row) or _BLOCKING_COPY.match(trace.text(call)) is not None


def _delayed(
    segments: list[Segment],
    segment: Segment,
    after: list[Segment],
    ready: float,
    launched_late: bool,
) -> Segment:
    """Add a segment, and before it what delayed it although all was ready; return the first."""
    if segment.begin - ready < SHORTEST:
        segment.after = after
        segments.append(segment)
        return segment
    work = "launch latency" if launched_late else "gap"
    # Latencies have a lane of their own: the stream may still be busy while one passes.
    lane = f"{segment.lane} launches" if launched_late else segment.lane
    delay = Segment(ready, segment.begin, lane, work, work, segment.step, after)
    segment.after = [delay]
    segments += (delay, segment)
    return delay


def _name(trace: KinetoTrace, spans: DeviceSpans, lane: int) -> str:
    """With its device where there are several."""
    devices = {trace.lanes[stream].owner for stream in set(spans.stream.tolist())}
    what = trace.lanes[lane]
    return what.name if len(devices) == 1 else f"device {what.owner} {what.name}"


CLOCKS = 50e-6
"""Seconds after the end of a call in which what it has waited for may seem to end: the clocks of
host and device differ by some microseconds."""

_CALL = re.compile(r"(?:cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize")


class Synchronisations:
    """Finds, for calls that synchronise, the segments of streams that they wait for."""

    def __init__(self, trace: KinetoTrace, spans: DeviceSpans, device: DeviceSegments) -> None:
        self._trace, self._spans, self._device = trace, spans, device
        self._order = {
            stream: np.flatnonzero(spans.stream == stream)
            for stream in np.unique(spans.stream).tolist()
        }
        self._launched = {
            stream: spans.launched[members] for stream, members in self._order.items()
        }
        self._seen = {
            int(trace.correlation[row]): seen for row, seen in trace.synchronisations.items()
        }
        calls = trace.of("runtime", "other") if self._seen else np.empty(0, dtype=np.int64)
        self._called = dict(
            zip(trace.correlation[calls].tolist(), trace.begin[calls].tolist(), strict=True)
        )

    def is_one(self, row: int) -> bool:
        return _CALL.match(self._trace.text(row)) is not None

    def waited(self, row: int, end: float) -> list[Segment]:
        """Return what the call in a row waits for: the last span of one stream, or of every one.

        The profiler may have recorded which (`cuda_sync`). Otherwise it is, of the last launched to
        each stream, the last to end before the call did; for an event, only if during the call.
        """
        trace = self._trace
        match = _CALL.match(trace.text(row))
        subject = match[1] if match else ""
        seen = self._seen.get(int(trace.correlation[row]))
        begin = float(trace.begin[row])
        before, wanted = begin, ""
        if seen is not None and subject == "Stream":
            wanted = seen.stream
        elif seen is not None and subject == "Event":
            wanted, before = seen.on, self._called.get(seen.recorded, begin)
        whole = subject in ("Device", "Ctx")
        segments = []
        for stream, members in self._order.items():
            at = int(np.searchsorted(self._launched[stream], before, side="left")) - 1
            if at >= 0 and wanted in ("", trace.lanes[stream].number):
                segment = self._device.of[int(members[at])]
                # Which stream it is must be known.
                if segment.end > end == trace.end[row] and (whole or wanted):
                    segment = self._ended(members[: at + 1], end)
                if segment.end <= end:
                    segments.append(segment)
        if subject == "Event" and not wanted:
            segments = [segment for segment in segments if segment.end > begin]
        if whole:
            return segments
        return sorted(segments, key=lambda segment: segment.end)[-1:]

    def copied(self, number: int, end: float) -> Segment | None:
        """Return a span if it is a copy that has kept its call until it was done."""
        trace, spans, segment = self._trace, self._spans, self._device.of[number]
        call = int(spans.call[number])
        if not keeps_host(trace, int(spans.row[number]), call):
            return None
        if segment.end > end == trace.end[call]:
            members = self._order[int(spans.stream[number])]
            segment = self._ended(members[: int(np.searchsorted(members, number)) + 1], end)
        return segment if segment.end <= end else None

    def _ended(self, members: Ints, end: float) -> Segment:
        """Return the span of a stream with whose end a call has returned, at `end`, by its clock.

        Of the spans, for all of which it has waited, the last may seem to end a little later. What
        is later is cut off, and follows on the stream.
        """
        device, last = self._device, self._device.of[int(members[-1])]
        if last.end > end + CLOCKS:
            return last
        for number in members[::-1].tolist():
            last = device.of[number]
            if last.begin <= end:
                break
        if last.end > end >= last.begin:
            rest = Segment(end, last.end, last.lane, last.name, last.work, last.step)
            if last.calls:  # ranks have met in the first part
                rest.work = rest.name = "gap"
            last.end = end
            device.segments.insert(device.segments.index(last) + 1, rest)
            device.rest.append((last, rest))
        return last
