"""What a call that synchronises waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from paracosm.prediction.traces.piece import Piece
from paracosm.timeline.kineto import DeviceSpans, KinetoTrace

__all__ = ["Synchronisations"]

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
