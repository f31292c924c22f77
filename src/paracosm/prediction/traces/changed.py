"""A traced job with other durations."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.graphs.job import Job
from paracosm.prediction.traces.piece import WORK
from paracosm.prediction.traces.traced import TracedJob
from paracosm.prediction.traces.what_if import WhatIf
from paracosm.units import format_duration

__all__ = ["changed"]

SHOWN = 8  # names, of those that there are

Mask = npt.NDArray[np.bool_]

_WORK_OF = {
    "compute": "compute",
    "copies": "copy",
    "host": "host",
    "data loading": "data loading",
    "link bandwidth": "communication",
    "link latency": "communication",
    "collective KIND": "communication",
    "kernel PATTERN": "compute",
}


def changed(traced: TracedJob, what_ifs: Sequence[WhatIf]) -> Job:
    """Return the job with the durations of all these what-ifs; structure and order stay.

    Raises:
        InputError: a what-if names a rank, kernel or collective that is not there, or has nothing
            to change.
    """
    job = traced.job
    duration = [program.duration.copy() for program in job.programs]
    for what_if in what_ifs:
        masks = _masks(traced, what_if)
        if not any(mask.any() for mask in masks):
            raise _without_effect(traced, what_if)
        _check_later(
            what_if,
            max(
                float(times[mask].max(initial=0.0))
                for times, mask in zip(duration, masks, strict=True)
            ),
        )
        for times, mask in zip(duration, masks, strict=True):
            times[mask] = np.maximum(times[mask] / what_if.faster + what_if.later, 0.0)
    programs = tuple(
        replace(program, duration=times)
        for program, times in zip(job.programs, duration, strict=True)
    )
    return replace(job, programs=programs)


def _check_later(what_if: WhatIf, longest: float) -> None:
    """Check that what takes less time still takes some."""
    if what_if.later < 0 and longest + what_if.later <= 0:
        raise InputError(
            f'--what-if "{what_if.text}": the longest takes {format_duration(longest)}: '
            "without communication is what takes none"
        )


def _masks(traced: TracedJob, what_if: WhatIf) -> list[Mask]:
    """Return for each rank which rows a what-if is about."""
    known = [rank.rank for rank in traced.ranks]
    if what_if.rank is not None and what_if.rank not in known:
        raise InputError(
            f'--what-if "{what_if.text}": no rank {what_if.rank}: the traces are of '
            f"{', '.join(map(str, known))}"
        )
    work = WORK.index(_WORK_OF[what_if.target])
    meant = _names(traced, what_if)
    return [
        (rank.work == work) & meant[program.name] & (what_if.rank in (None, rank.rank))
        for rank, program in zip(traced.ranks, traced.job.programs, strict=True)
    ]


def _names(traced: TracedJob, what_if: WhatIf) -> Mask:
    """Return for each name of the job whether a what-if means it."""
    names = traced.job.names
    if not what_if.pattern:
        return np.ones(len(names), dtype=bool)
    pattern = what_if.pattern.lower()
    if what_if.target == "kernel PATTERN" and "*" not in pattern:
        pattern = f"*{pattern}*"
    return np.array([fnmatch.fnmatchcase(name.lower(), pattern) for name in names], dtype=bool)


def _without_effect(traced: TracedJob, what_if: WhatIf) -> InputError:
    """Return the error for a what-if that would change nothing."""
    work = WORK.index(_WORK_OF[what_if.target])
    present = {
        traced.job.names[code]
        for rank, program in zip(traced.ranks, traced.job.programs, strict=True)
        for code in np.unique(program.name[rank.work == work]).tolist()
    }
    if what_if.pattern and present:
        kind = what_if.target.split()[0]
        known = sorted({name[:60] for name in present})
        few = [*known[:SHOWN], "..."] if len(known) > SHOWN else known
        near = get_close_matches(what_if.pattern, known, n=1, cutoff=0.5)
        return InputError(
            f'--what-if "{what_if.text}": {unknown(kind, what_if.pattern, near or few)}'
        )
    return InputError(
        f'--what-if "{what_if.text}": would change nothing: the traces have no '
        f"{_WORK_OF[what_if.target]}"
    )
