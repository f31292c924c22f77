"""The timeline of an emulated job: what each real rank computed, waited for and communicated.

A rank is a node: "rank0". Its resources are "compute", with a span for each stretch of an iteration
between waits, "wait", and one for each comm worker of a process group, "comm default_pg 0", where
collectives last from when the worker took them up until they were done. Time 0 is the first record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from paracosm.emulation.exposure import Floats, union
from paracosm.emulation.rank_records import RankRecords, by_rank
from paracosm.emulation.records import Collective, Record
from paracosm.timeline import Timeline
from paracosm.units import format_size

__all__ = ["timeline_of"]


def timeline_of(records: Sequence[Record]) -> Timeline:
    """Return the timeline of all real ranks; an empty one where nothing was recorded."""
    timeline = Timeline()
    found = by_rank(records)
    start = min((each.first for each in found), default=np.inf)
    for own in found:
        if np.isfinite(own.first):
            _add(timeline, own, start)
    return timeline


def _add(timeline: Timeline, own: RankRecords, start: float) -> None:
    node = f"rank{own.rank}"
    waits = union(own.waits)
    for name, begin, end in _computing(own, waits):
        timeline.span(node, "compute", name, begin - start, end - start)
    results = sorted(own.collectives, key=lambda each: each.done)
    done = [each.done for each in results]
    for begin, end in waits.tolist():
        last = bisect_right(done, end) - 1
        # What came last in a wait is what it was for; a message may still be on its way.
        what = _name(results[last]) if last >= 0 and done[last] >= begin else "collective"
        timeline.span(node, "wait", f"wait for {what}", begin - start, end - start)
    for each in own.collectives:
        resource = f"comm {each.group} {each.worker}"
        timeline.span(node, resource, _name(each), each.begun - start, each.done - start)


def _computing(own: RankRecords, waits: Floats) -> list[tuple[str, float, float]]:
    """Return name, begin and end of the stretches between waits, cut where iterations end."""
    ends = [each.end for each in own.iterations]
    names = [f"iteration {each.number}" for each in own.iterations]
    # As many waits have begun as have ended: it is none that this end of an iteration lies in.
    begun, ended = (np.searchsorted(each, ends) for each in waits.T)
    cuts = np.array(ends)[begun == ended]
    begin = np.sort(np.concatenate([[own.first], waits[:, 1], cuts]))
    end = np.sort(np.concatenate([waits[:, 0], cuts, [own.last]]))
    return [
        (names[place] if (place := bisect_right(ends, since)) < len(names) else "end", since, until)
        for since, until in zip(begin.tolist(), end.tolist(), strict=True)
        if until > since
    ]


def _name(collective: Collective) -> str:
    size = f" {format_size(collective.size)}" if collective.size else ""
    return f"{collective.kind}{size}"
