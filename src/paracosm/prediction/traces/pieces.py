"""One rank's trace as pieces: what its threads and streams did, and what each piece waited for.

The pieces cover every instant in which a lane was not waiting for another one. Played again, each
begins as soon as its lane is free and what it comes after has ended: when it began in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.prediction.traces.device import DevicePieces, Synchronisations, device_pieces
from paracosm.prediction.traces.host import HandOver, Host, busy_of, hand_overs, thread_pieces
from paracosm.prediction.traces.traced import Piece
from paracosm.timeline.kineto import (
    DeviceSpans,
    KinetoTrace,
    Window,
    backward_threads,
    device_spans,
    steps_of_training,
)

__all__ = ["Pieces", "in_order", "pieces_of"]


ByThread = dict[int, list[Piece]]


@dataclass(frozen=True, eq=False)
class Pieces:
    """What a rank did in a window.

    Attributes:
        pieces: in an order of issue.
        marks: the pieces of the loop's thread with which the steps begin.
        last: the last piece of the loop's thread; None where the trace has no steps.
        launched: what was launched in the window, in the order of launches: the piece of the call,
            and that of the span.
    """

    pieces: list[Piece]
    marks: list[Piece]
    last: Piece | None
    launched: list[tuple[Piece, Piece]]


def pieces_of(trace: KinetoTrace, window: Window) -> Pieces:
    """Return what a rank did in a window of its trace."""
    spans = device_spans(trace, window)
    steps = steps_of_training(trace)
    device = device_pieces(trace, window, spans, steps)
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
        threads[number] = thread_pieces(
            host, number, window.begin, end, holes, cuts if main else ()
        )
    _hand_over(window, overs, threads)
    _number(window, spans, device, threads)
    pieces = [*device.pieces, *(piece for each in threads.values() for piece in each)]
    main_pieces = threads.get(window.thread, [])
    return Pieces(
        pieces=in_order(pieces),
        marks=_first_at(main_pieces, cuts),
        last=main_pieces[-1] if window.steps and main_pieces else None,
        launched=[
            (launch, device.of[number])
            for number in queue.tolist()
            if (launch := host.launched_by.get(int(spans.call[number]))) is not None
        ],
    )


def _number(window: Window, spans: DeviceSpans, device: DevicePieces, threads: ByThread) -> None:
    """Note for each piece in which step it was done, or launched."""
    begins = np.array([step.begin - 1e-12 for step in window.steps])
    for pieces in threads.values():
        for piece in pieces:
            piece.iteration = int(np.searchsorted(begins, piece.begin, side="right")) - 1
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

    A thread's pieces end, or begin, at the hand-over, because its hole does.
    """
    own = _Edges(threads.get(window.thread, []))
    others = {thread: _Edges(pieces) for thread, pieces in threads.items()}
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
    """Finds pieces of one thread by when they begin and end."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self._begin = np.array([piece.begin for piece in pieces])
        self._end = np.array([piece.end for piece in pieces])

    def last_before(self, time: float) -> Piece | None:
        at = int(np.searchsorted(self._end, time, side="right")) - 1
        return self._pieces[at] if at >= 0 else None

    def first_from(self, time: float) -> Piece | None:
        at = int(np.searchsorted(self._begin, time, side="left"))
        return self._pieces[at] if at < len(self._pieces) else None


def _first_at(pieces: list[Piece], times: list[float]) -> list[Piece]:
    """Return the first pieces that begin at these times or later."""
    edges = _Edges(pieces)
    return [piece for time in times if (piece := edges.first_from(time - 1e-12)) is not None]


def in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces by begin, but none before one that it comes after.

    Instants alone do not say: many spans of an old trace take no microsecond, and begin and end
    with what they wait for.

    Args:
        pieces: those of each lane in the order in which they ran.
    """
    before: dict[int, Piece] = {}
    last: dict[str, Piece] = {}
    for piece in pieces:
        if piece.lane in last:
            before[id(piece)] = last[piece.lane]
        last[piece.lane] = piece
    done: set[int] = set()
    ordered: list[Piece] = []
    for piece in sorted(pieces, key=lambda each: (each.begin, each.end)):
        stack = [piece]
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
