"""Replays of traces as a timeline."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.jobs.program import KINDS
from paracosm.prediction.traces.outcome import Times
from paracosm.prediction.traces.traced import TracedJob
from paracosm.timeline import Timeline

__all__ = ["timeline_of"]

LONGEST = 100  # characters of a name: those of kernels go into the thousands
_COLLECTIVE = KINDS.index("collective")


def timeline_of(traced: TracedJob, replays: Sequence[tuple[str, Times]]) -> Timeline:
    """Return the spans of replays of one job.

    Args:
        traced: the job.
        replays: what is put behind the names of the ranks, and the times.
    """
    timeline = Timeline()
    job = traced.job
    names = [name[:LONGEST] for name in job.names]
    add = timeline.spans.append
    for text, times in replays:
        for number, program in enumerate(job.programs):
            node = job.labels[number] + text
            columns = (program.name, program.lane, program.kind, times.arrive[number])
            for name, lane, kind, arrive, begin, end in zip(
                *(column.tolist() for column in columns),
                times.begin[number].tolist(),
                times.end[number].tolist(),
                strict=True,
            ):
                if kind == _COLLECTIVE and begin > arrive:
                    add((node, job.lanes[lane], f"wait: {names[name]}", arrive, begin, -1))
                if end > begin:
                    add((node, job.lanes[lane], names[name], begin, end, -1))
    return timeline
