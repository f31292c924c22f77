"""A traced job with other durations.

What a trace can change, of what `paracosm.cluster.changes` describes:

    [worker R:] compute, copies, host, data loading, kernel PATTERN   slower, faster or none
    all_reduce, ..., collectives    slower, faster, none, +T, -T; from when all their ranks are in
    links: bandwidth                by a factor: collectives take so much less, their latency too
    latency                         +T, -T: every collective takes so much longer, or less
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from paracosm.cluster.changes import COLLECTIVES, PARTS, Change, refuse_changes
from paracosm.errors import InputError, unknown
from paracosm.jobs import Job
from paracosm.prediction.traces.traced import WORK, TracedJob
from paracosm.units import format_duration

SHOWN = 8  # names, of those that there are

Mask = npt.NDArray[np.bool_]

_WORK_OF = {**{part: part for part in PARTS}, "copies": "copy", "kernel": "compute"}


def changed(traced: TracedJob, changes: Sequence[Change]) -> Job:
    """Return the job with the durations after all these changes; structure and order stay.

    Raises:
        InputError: a change names a rank, kernel or collective that is not there, is none of those
            that a trace can play, or has nothing to change.
    """
    refuse_changes(
        (change for change in changes if not _is_of_traces(change)),
        "replay",
        "compute, copies, host, data loading and kernels of workers; collectives, the bandwidth of "
        "all links by a factor, and their latency by +T",
    )
    job = traced.job
    duration = [program.duration.copy() for program in job.programs]
    for change in changes:
        masks = _masks(traced, change)
        if not any(mask.any() for mask in masks):
            raise _without_effect(traced, change)
        # More bandwidth is less time.
        factor = 1 / change.factor if change.what == "bandwidth" else change.factor
        added = float(change.added)
        longest = max(
            float(times[mask].max(initial=0.0)) for times, mask in zip(duration, masks, strict=True)
        )
        if added < 0 and longest + added <= 0:
            raise change.error(
                f"the longest takes {format_duration(longest)}: collectives: none is what takes no "
                "time"
            )
        for times, mask in zip(duration, masks, strict=True):
            times[mask] = np.maximum(times[mask] * factor + added, 0.0)
    programs = tuple(
        replace(program, duration=times)
        for program, times in zip(job.programs, duration, strict=True)
    )
    return replace(job, programs=programs)


def _is_of_traces(change: Change) -> bool:
    match change.subject:
        case "workers":
            return change.what in PARTS
        case "collectives":
            return change.what == "time"
        case "links" if change.value is None:
            return change.what == ("latency" if change.added else "bandwidth")
        case _:
            return False


def _masks(traced: TracedJob, change: Change) -> list[Mask]:
    known = [rank.rank for rank in traced.ranks]
    ranks = set(known)
    if change.first is not None:
        ranks = set(range(change.first, (change.last or change.first) + 1))
        if missing := ranks - set(known):
            raise change.error(
                f"no worker {min(missing)}: there are traces of ranks {', '.join(map(str, known))}"
            )
    work, meant = WORK.index(_work(change)), _names(traced, change)
    return [
        (rank.work == work) & meant[program.name] & (rank.rank in ranks)
        for rank, program in zip(traced.ranks, traced.job.programs, strict=True)
    ]


def _work(change: Change) -> str:
    return _WORK_OF[change.what] if change.subject == "workers" else "communication"


def _pattern(change: Change) -> str:
    """Return what names of tasks are compared with; "" where it is about all of them."""
    if change.subject == "collectives":
        return "" if change.kinds == COLLECTIVES else change.kinds[0]
    return change.pattern


def _names(traced: TracedJob, change: Change) -> Mask:
    """Return for each name of the job whether a change means it."""
    names = traced.job.names
    pattern = _pattern(change).lower()
    if not pattern:
        return np.ones(len(names), dtype=bool)
    if change.what == "kernel" and "*" not in pattern:
        pattern = f"*{pattern}*"
    return np.array([fnmatch.fnmatchcase(name.lower(), pattern) for name in names], dtype=bool)


def _without_effect(traced: TracedJob, change: Change) -> InputError:
    work = WORK.index(_work(change))
    present = {
        traced.job.names[code]
        for rank, program in zip(traced.ranks, traced.job.programs, strict=True)
        for code in np.unique(program.name[rank.work == work]).tolist()
    }
    if (pattern := _pattern(change)) and present:
        kind = "kernel" if change.what == "kernel" else "collective"
        known = sorted({name[:60] for name in present})
        few = [*known[:SHOWN], "..."] if len(known) > SHOWN else known
        near = get_close_matches(pattern, known, n=1, cutoff=0.5)
        return change.error(str(unknown(kind, pattern, near or few)))
    return change.error(f"has no effect: the traces have no {_work(change)}")
