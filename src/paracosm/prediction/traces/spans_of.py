"""Replays of traces as a timeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.jobs.job import KINDS
from paracosm.prediction.traces.outcome import Times
from paracosm.prediction.traces.traced import TracedJob
from paracosm.timeline import Labels, Timeline

LONGEST = 100  # characters of a name: those of kernels go into the thousands
_COLLECTIVE = KINDS.index("collective")


def timeline_of(traced: TracedJob, replays: Sequence[tuple[str, Times]]) -> Timeline:
    """Return the spans of replays of one job.

    Args:
        traced: the job.
        replays: what is put behind the names of the ranks, and the times.
    """
    timeline, job = Timeline(), traced.job
    names = [name[:LONGEST] for name in job.names]
    words = [*names, *(f"wait: {name}" for name in names)]
    for text, times in replays:
        ranks = zip(job.labels, job.programs, times.arrive, times.begin, times.end, strict=True)
        for label, program, arrive, begin, end in ranks:
            # Of each row the waiting, then the work.
            waits = (program.kind == _COLLECTIVE) & (begin > arrive)
            timeline.extend(
                label + text,
                Labels(program.lane[:, None], job.lanes),
                Labels(np.add.outer(program.name, [len(names), 0]), words),
                np.column_stack([arrive, begin]),
                np.column_stack([begin, end]),
                where=np.column_stack([waits, end > begin]),
            )
    return timeline
