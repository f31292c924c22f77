"""Durations from the profiler's trace of the same run, brought to the ops of an execution trace.

Both count record functions: what the execution trace calls "rf_id" is the profiler's "Record
function id", since PyTorch 2.2. Traces without it are laid beside each other: the calls of each
thread are found where as many names as possible are the same in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.importers.pytorch.trace import ObservedCall
from paracosm.timeline.kineto import OpSpan

__all__ = ["joined"]

Codes = npt.NDArray[np.int32]

_ANCHOR = 2000
"""Calls of a thread by which its place in the profiler's trace is found."""

_ALIKE = 0.8
"""Share of the names that must be the same there."""


def joined(
    calls: Mapping[int, ObservedCall], times: Sequence[OpSpan], where: str
) -> dict[int, OpSpan]:
    """Return the times of calls by their ids, as far as they are met.

    Raises:
        InputError: not one of them is.
    """
    wanted = sorted((c for c in calls.values() if c.record > 0), key=lambda c: c.record)
    by_record = {time.record: time for time in times if time.record > 0}
    if by_record:
        found = {
            call.id: by_record[call.record]
            for call in wanted
            if call.record in by_record and by_record[call.record].name == call.name
        }
    else:
        found = _beside(calls.values(), times)
    if not found:
        raise InputError(
            f"{where}: the profiler's trace has none of its ops: it is of another run, or of "
            "another rank"
        )
    return found


def _beside(calls: Iterable[ObservedCall], times: Sequence[OpSpan]) -> dict[int, OpSpan]:
    """Return the times of calls that stand in the same order in both traces."""
    codes: dict[str, int] = {}
    threads: dict[object, list[ObservedCall]] = {}
    for call in calls:
        if call.record > 0:
            threads.setdefault(call.attributes.get("tid"), []).append(call)
    lanes: dict[int, list[OpSpan]] = {}
    for time in times:
        lanes.setdefault(time.thread, []).append(time)

    def coded(names: Iterable[str]) -> Codes:
        return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int32)

    seen = {lane: coded(time.name for time in ops) for lane, ops in lanes.items()}
    found: dict[int, OpSpan] = {}
    for thread in threads.values():
        wanted = coded(call.name for call in thread)
        share, lane, offset = _placed(wanted, seen)
        if share < _ALIKE:
            continue
        for call, time in zip(thread, lanes[lane][offset:], strict=False):
            if call.name == time.name:
                found[call.id] = time
    return found


def _placed(wanted: Codes, seen: Mapping[int, Codes]) -> tuple[float, int, int]:
    """Return where a thread's calls stand: the share of the same names, the lane, the first op."""
    anchor = wanted[:_ANCHOR]
    best = (0.0, 0, 0)
    for lane, names in seen.items():
        if len(names) < len(anchor):
            continue
        windows = np.lib.stride_tricks.sliding_window_view(names, len(anchor))
        same = np.array([np.count_nonzero(window == anchor) for window in windows])
        place = int(same.argmax())
        best = max(best, (float(same[place]) / len(anchor), lane, place), key=lambda each: each[0])
    return best
