"""Which span of a stream waits for a span of another one.

Where the profiler recorded its waits (`cuda_sync`), they say so: a wait makes the next span of its
stream wait for the last span that was launched, before the event was recorded, to the other one.

Where it did not, two rules stand in, as in replays of traces before this one (Zhu et al., Daydream,
USENIX ATC 2020; Hu et al., dPRO, MLSys 2022): after a call of `cudaStreamWaitEvent` the next launch
of its thread waits for what was launched to other streams before the call; and a span that begins
late, for no other reason, waits for the span of another stream that ended last before. Neither adds
a wait that the trace contradicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from paracosm.timeline.kineto.spans import DeviceSpans
from paracosm.timeline.kineto.trace import KinetoTrace

__all__ = ["waits_between_streams"]

LATE = 5e-6  # seconds without a reason that need one: a launch on an idle stream takes 2 to 5 us

_WAIT_CALL = re.compile(r"(cuda|hip|cu)StreamWaitEvent")


def waits_between_streams(trace: KinetoTrace, spans: DeviceSpans) -> dict[int, list[int]]:
    """Return, by number of a span, the numbers of the spans of other streams that it waits for."""
    order = {
        int(stream): np.flatnonzero(spans.stream == stream) for stream in np.unique(spans.stream)
    }
    if len(order) < 2:
        return {}
    waits: dict[int, list[int]] = {}
    if any(each.kind == "stream wait event" for each in trace.synchronisations.values()):
        _recorded(trace, spans, order, waits)
    elif not trace.synchronisations:
        _after_calls(trace, spans, order, waits)
        _for_late(trace, spans, order, waits)
    return waits


def _recorded(
    trace: KinetoTrace,
    spans: DeviceSpans,
    order: Mapping[int, np.ndarray],
    waits: dict[int, list[int]],
) -> None:
    """Add what the profiler saw."""
    calls = trace.of("runtime", "other")
    call_at: dict[int, float] = dict(
        zip(trace.correlation[calls].tolist(), trace.begin[calls].tolist(), strict=True)
    )
    stream_of = {(trace.lanes[lane].owner, trace.lanes[lane].number): lane for lane in order}
    for row, seen in trace.synchronisations.items():
        if seen.kind != "stream wait event":
            continue
        owner = trace.lanes[trace.lane[row]].owner
        waiting, on = stream_of.get((owner, seen.stream)), stream_of.get((owner, seen.on))
        if waiting is None or on is None or waiting == on:
            continue
        called = call_at.get(int(trace.correlation[row]), float(trace.begin[row]))
        recorded = call_at.get(seen.recorded, called)
        source = _last_launched(spans, order[on], recorded)
        target = _first_launched(spans, order[waiting], called)
        if source >= 0 and target >= 0 and spans.end[source] <= spans.begin[target]:
            waits.setdefault(target, []).append(source)


def _after_calls(
    trace: KinetoTrace,
    spans: DeviceSpans,
    order: Mapping[int, np.ndarray],
    waits: dict[int, list[int]],
) -> None:
    """Add what the calls that make a stream wait hint at."""
    wanted = [code for code, name in enumerate(trace.names) if _WAIT_CALL.match(name)]
    rows = np.flatnonzero(np.isin(trace.name, wanted))
    for thread in np.unique(trace.lane[rows]):
        called = trace.begin[rows[trace.lane[rows] == thread]]
        mine = np.flatnonzero(spans.thread == thread)
        launched = spans.launched[mine]
        mine = mine[np.argsort(launched, kind="stable")]
        launched = spans.launched[mine]
        target = np.searchsorted(launched, called, side="right")
        for at, time in dict(zip(target.tolist(), called.tolist(), strict=True)).items():
            if at == len(mine):
                continue
            span = int(mine[at])
            for stream, members in order.items():
                if stream != spans.stream[span]:
                    _add(spans, waits, span, _last_launched(spans, members, time))


def _for_late(
    trace: KinetoTrace,
    spans: DeviceSpans,
    order: Mapping[int, np.ndarray],
    waits: dict[int, list[int]],
) -> None:
    """Add a reason to spans that begin late without one."""
    by_end = np.argsort(spans.end, kind="stable")
    ends = spans.end[by_end]
    for members in order.values():
        free = -np.inf
        for span in members.tolist():
            begin = spans.begin[span]
            known = [spans.end[other] for other in waits.get(span, ())]
            call = spans.call[span]
            issued = trace.end[call] if call >= 0 else spans.launched[span]
            ready = max(free, min(issued, begin), *known, -np.inf)
            free = max(free, spans.end[span])
            if call < 0 or begin - ready <= LATE:
                continue
            at = int(np.searchsorted(ends, begin, side="right")) - 1
            while at >= 0 and ends[at] > ready:
                other = int(by_end[at])
                if (
                    spans.stream[other] != spans.stream[span]
                    and spans.launched[other] < spans.launched[span]
                ):
                    _add(spans, waits, span, other)
                    break
                at -= 1


def _add(spans: DeviceSpans, waits: dict[int, list[int]], span: int, other: int) -> None:
    """Note that a span waits for another one, unless it began before that ended."""
    if other >= 0 and spans.end[other] <= spans.begin[span]:
        known = waits.setdefault(span, [])
        if other not in known:
            known.append(other)


def _last_launched(spans: DeviceSpans, members: np.ndarray, before: float) -> int:
    """Return the last of a stream's spans that was launched before an instant; -1 for none."""
    at = int(np.searchsorted(spans.launched[members], before, side="left")) - 1
    return int(members[at]) if at >= 0 else -1


def _first_launched(spans: DeviceSpans, members: np.ndarray, after: float) -> int:
    """Return the first of a stream's spans that was launched after an instant; -1 for none."""
    at = int(np.searchsorted(spans.launched[members], after, side="right"))
    return int(members[at]) if at < len(members) else -1
