"""The timeline of an emulated job: what each real rank computed, waited for and communicated.

A rank is a node: "rank0". Its resources are "compute", with a span for each stretch of an iteration
between waits, "wait", and one for each comm worker of a process group, "comm default_pg 0", where
collectives last from when the worker took them up until they were done. Time 0 is the first record.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.emulation.rank_records import RankRecords, by_rank
from paracosm.emulation.records import Collective, Record
from paracosm.timeline import Labels, Timeline, union
from paracosm.timeline.analysis import Floats
from paracosm.units import format_size


def timeline_of(records: Sequence[Record]) -> Timeline:
    timeline = Timeline()
    found = by_rank(records)
    start = min((each.first for each in found), default=np.inf)
    for own in found:
        if np.isfinite(own.first):
            _add(timeline, own, start)
    return timeline


def _add(timeline: Timeline, own: RankRecords, start: float) -> None:
    node = f"rank{own.rank}"
    since, until = union(*own.waits.T)
    names, begin, end = _computing(own, since, until)
    timeline.extend(node, "compute", names, begin - start, end - start, where=end > begin)
    results = sorted(own.collectives, key=lambda each: each.done)
    done = np.array([each.done for each in results])
    # What came last in a wait is what it was for; a message may still be on its way.
    words = [*(f"wait for {_name(each)}" for each in results), "wait for collective"]
    last = np.searchsorted(done, until, side="right") - 1
    known = (last >= 0) & (done[last] >= since) if len(done) else np.zeros(len(last), dtype=bool)
    what = Labels(np.where(known, last, len(results)), words)
    timeline.extend(node, "wait", what, since - start, until - start)
    for each in own.collectives:
        resource = f"comm {each.group} {each.worker}"
        timeline.span(node, resource, _name(each), each.begun - start, each.done - start)


def _computing(own: RankRecords, since: Floats, until: Floats) -> tuple[Labels, Floats, Floats]:
    """Return names, begins and ends of the stretches between waits, cut where iterations end."""
    ends = np.array([each.end for each in own.iterations])
    # As many waits have begun as have ended: it is none that this end of an iteration lies in.
    cuts = ends[np.searchsorted(since, ends) == np.searchsorted(until, ends)]
    begin = np.sort(np.concatenate([[own.first], until, cuts]))
    end = np.sort(np.concatenate([since, cuts, [own.last]]))
    words = [*(f"iteration {each.number}" for each in own.iterations), "end"]
    return Labels(np.searchsorted(ends, begin, side="right"), words), begin, end


def _name(collective: Collective) -> str:
    size = f" {format_size(collective.size)}" if collective.size else ""
    return f"{collective.kind}{size}"
