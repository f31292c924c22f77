"""How long each op of a Kineto trace took, on the device where it launched anything there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paracosm.timeline.kineto.trace import KinetoTrace

__all__ = ["OpSpan", "op_times"]


@dataclass(frozen=True, slots=True)
class OpSpan:
    """One op.

    Attributes:
        record: "Record function id"; -1 where it has none.
        thread: number of the lane that it began on, where ops stand in the order of their begins.
        name: "aten::addmm".
        seconds: of the device on what the op launched, itself and through others that it called;
            its own span on the host where it launched nothing.
        on_device: whether it launched anything.
    """

    record: int
    thread: int
    name: str
    seconds: float
    on_device: bool


def op_times(trace: KinetoTrace) -> Iterator[OpSpan]:
    """Yield the ops and named ranges of a trace, thread by thread in the order in which they began.

    What an op launched are the kernels, copies and fills whose correlation a call of the runtime
    has that stands within the op on its thread.
    """
    device = trace.of("kernel", "copy", "memset")
    known = device[trace.correlation[device] >= 0]
    work: dict[int, float] = {}
    for number, seconds in zip(
        trace.correlation[known].tolist(), trace.duration[known].tolist(), strict=True
    ):
        work[number] = work.get(number, 0.0) + seconds
    calls, ops = trace.of("runtime"), trace.of("op", "annotation")
    for lane in np.unique(trace.lane[ops]).tolist():
        here = calls[trace.lane[calls] == lane]
        launched = [row for row in here.tolist() if int(trace.correlation[row]) in work]
        begins = trace.begin[launched]
        sums = np.cumsum([0.0, *(work[int(trace.correlation[row])] for row in launched)])
        rows = ops[trace.lane[ops] == lane]
        first = np.searchsorted(begins, trace.begin[rows], side="left")
        last = np.searchsorted(begins, trace.end[rows], side="right")
        for row, low, high in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True):
            seconds = float(sums[high] - sums[low]) if high > low else float(trace.duration[row])
            yield OpSpan(int(trace.record[row]), lane, trace.text(row), seconds, high > low)
