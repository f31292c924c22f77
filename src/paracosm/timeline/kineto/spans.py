"""What ran on the device within a window: every span, with the call that launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.timeline.kineto.trace import KinetoTrace
from paracosm.timeline.kineto.window import Window

__all__ = ["DeviceSpans", "device_spans"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DeviceSpans:
    """m spans of streams, by begin.

    Attributes:
        row: m rows of the trace.
        begin, end: m seconds from the trace's origin; what began before the window begins with it.
        stream: m lanes of the trace.
        call: m rows of the calls that launched them; -1 where that was before the window.
        launched: m seconds at which those calls began; minus infinity where there is none.
        thread: m lanes of those calls; -1.
    """

    row: Ints
    begin: Floats
    end: Floats
    stream: Codes
    call: Ints
    launched: Floats
    thread: Codes

    def __len__(self) -> int:
        return len(self.row)


def device_spans(trace: KinetoTrace, window: Window) -> DeviceSpans:
    """Return the spans that calls of the window launched, and those that still ran when it began.

    Of a trace without calls, whose profiler saw the device only, all spans in the window.
    """
    rows = trace.of("kernel", "copy", "memset")
    calls = trace.of("runtime", "other")
    calls = calls[trace.correlation[calls] >= 0]
    # Of several calls with one correlation (runtime and driver) the outermost stands first.
    numbers, first = np.unique(trace.correlation[calls], return_index=True)
    place = np.searchsorted(numbers, trace.correlation[rows])
    place = np.minimum(place, max(len(numbers) - 1, 0))
    known = np.zeros(len(rows), dtype=bool)
    call = np.full(len(rows), -1, dtype=np.int64)
    if len(numbers):
        known = (numbers[place] == trace.correlation[rows]) & (trace.correlation[rows] >= 0)
        call[known] = calls[first[place[known]]]
    launched = np.where(known, trace.begin[call], -np.inf)
    within = (launched >= window.begin) & (launched <= window.end)
    alone = ~known & (trace.begin[rows] <= window.end)
    running = (trace.end[rows] > window.begin) & (alone | (known & (launched < window.begin)))
    chosen = within | running
    rows, call, launched, within = rows[chosen], call[chosen], launched[chosen], within[chosen]
    return DeviceSpans(
        row=rows,
        begin=np.maximum(trace.begin[rows], window.begin),
        end=trace.end[rows],
        stream=trace.lane[rows],
        call=np.where(within, call, -1),
        launched=np.where(within, launched, -np.inf),
        thread=np.where(within, trace.lane[call], -1).astype(np.int32),
    )
