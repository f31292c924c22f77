"""The streams of a rank as pieces: what ran on them, and what delayed it.

A call that launches ends, for what it launches, as soon as that begins. What begins later than its
call ends does so after a *launch latency* if the stream was idle, and after a *gap* if it was not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.prediction.traces.traced import Piece
from paracosm.timeline.kineto import (
    CATEGORIES,
    Calls,
    DeviceSpans,
    KinetoTrace,
    Steps,
    Window,
    waits_between_streams,
)

__all__ = ["SHORTEST", "DevicePieces", "Synchronisations", "device_pieces"]


SHORTEST = 1e-9  # seconds: the resolution of traces; what is shorter is no time at all
_KERNEL = CATEGORIES.index("kernel")


@dataclass(frozen=True, eq=False)
class DevicePieces:
    """The pieces of all streams.

    Attributes:
        pieces: all of them.
        of: the piece of each span.
        first: of each span the piece that must come after its launch: a delay, or that of the span.
        issued: seconds at which each span was issued by its call.
    """

    pieces: list[Piece]
    of: list[Piece]
    first: list[Piece]
    issued: list[float]


def device_pieces(
    trace: KinetoTrace, window: Window, spans: DeviceSpans, steps: Steps
) -> DevicePieces:
    """Return the pieces of all streams; what launches them is still to be put before them."""
    waits = waits_between_streams(trace, spans)
    calls = Calls(trace)
    names = {lane: _name(trace, spans, lane) for lane in set(spans.stream.tolist())}
    free = dict.fromkeys(names, window.begin)
    made = DevicePieces([], [], [], [])
    ends = trace.end
    for number in range(len(spans)):
        row, call = int(spans.row[number]), int(spans.call[number])
        stream = int(spans.stream[number])
        issued = window.begin
        if call >= 0:
            issued, returned = float(trace.begin[call]), float(ends[call])
            # A call that waits for its copy, and for what was before it, has issued it at once.
            if "Pageable" not in trace.text(row) or free[stream] <= issued:
                issued = max(issued, min(returned, float(spans.begin[number])))
        # The clocks of host and device differ by a microsecond or so: nothing begins before its
        # call, or before what it comes after.
        begin = max(float(spans.begin[number]), free[stream], issued)
        after = [
            made.of[other]
            for other in waits.get(number, ())
            if other < number and made.of[other].end <= begin
        ]
        ready = max([free[stream], issued, *(piece.end for piece in after)])
        begin = max(begin, ready)
        end = max(float(spans.end[number]), begin)
        piece = Piece(begin, end, names[stream], trace.text(row), "compute")
        if trace.category[row] != _KERNEL:
            piece.work = "copy"
        else:
            piece.call = calls.of(row, call)
        piece.step = steps.of(int(spans.thread[number]), float(spans.launched[number]))
        if piece.call is not None:
            piece.work, piece.step = "communication", "communication"
        late = call >= 0 and issued >= ready
        made.first.append(_delayed(made.pieces, piece, after, ready, late))
        made.of.append(piece)
        made.issued.append(issued)
        free[stream] = end
    return made


def _delayed(
    pieces: list[Piece], piece: Piece, after: list[Piece], ready: float, launched_late: bool
) -> Piece:
    """Add a piece, and before it what delayed it although all was ready; return the first."""
    if piece.begin - ready < SHORTEST:
        piece.after = after
        pieces.append(piece)
        return piece
    work = "launch latency" if launched_late else "gap"
    # Latencies have a lane of their own: the stream may still be busy while one passes.
    lane = f"{piece.lane} launches" if launched_late else piece.lane
    delay = Piece(ready, piece.begin, lane, work, work, piece.step, after)
    piece.after = [delay]
    pieces += (delay, piece)
    return delay


def _name(trace: KinetoTrace, spans: DeviceSpans, lane: int) -> str:
    """Return the name of a stream, with its device where there are several."""
    devices = {trace.lanes[each].owner for each in set(spans.stream.tolist())}
    what = trace.lanes[lane]
    return what.name if len(devices) == 1 else f"device {what.owner} {what.name}"


_CALL = re.compile(r"(?:cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize")


class Synchronisations:
    """Finds, for calls that synchronise, the pieces of streams that they wait for.

    Args:
        trace: of which they are.
        spans: of the device.
        pieces: one for each span.
    """

    def __init__(self, trace: KinetoTrace, spans: DeviceSpans, pieces: Sequence[Piece]) -> None:
        self._trace, self._pieces = trace, pieces
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
        """Whether a row is a call that synchronises."""
        return _CALL.match(self._trace.text(row)) is not None

    def waited(self, row: int, end: float) -> list[Piece]:
        """Return what the call in a row waits for: the last span of one stream, or of every one.

        The profiler may have recorded which (`cuda_sync`). Otherwise it is, of the last spans that
        were launched to each stream, the one that ended last before the call did; for an event,
        only if that was during the call.
        """
        trace = self._trace
        match = _CALL.match(trace.text(row))
        what = match[1] if match else ""
        seen = self._seen.get(int(trace.correlation[row]))
        begin = float(trace.begin[row])
        before, wanted = begin, ""
        if seen is not None and what == "Stream":
            wanted = seen.stream
        elif seen is not None and what == "Event":
            wanted, before = seen.on, self._called.get(seen.recorded, begin)
        found = []
        for stream, members in self._order.items():
            at = int(np.searchsorted(self._launched[stream], before, side="left")) - 1
            if at >= 0 and wanted in ("", trace.lanes[stream].number):
                piece = self._pieces[int(members[at])]
                if piece.end <= end:
                    found.append(piece)
        if what == "Event" and not wanted:
            found = [piece for piece in found if piece.end > begin]
        if what in ("Device", "Ctx"):
            return found
        return sorted(found, key=lambda piece: piece.end)[-1:]
