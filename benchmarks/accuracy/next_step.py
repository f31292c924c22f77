"""The step after those that were traced.

The last step's tasks are put behind those of all steps once more, each as long as its kind (host,
kernels, gaps, ...) was in the median of the steps, and all is played. What the steps before have
left on the device then counts: the first steps of a trace may be short, because the host runs ahead
until the driver's queue is full, and the next one long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs.job import Program
from paracosm.replays.outcome import replayed
from paracosm.replays.segments import QUEUE
from paracosm.replays.traced import WORK, TracedJob, TracedRank

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def next_step_time(traced: TracedJob, ahead: int = 1) -> float:
    """Return the seconds that a later step takes, of the slowest rank, from its loop's thread.

    `ahead` is 1 for the first step after those of the traces.

    Raises:
        InputError: the traces mark no steps.
    """
    if not traced.steps:
        raise InputError(f"{traced.ranks[0].path}: marks no steps: no next one can be predicted")
    programs, ends = [], []
    for rank, program in zip(traced.ranks, traced.job.programs, strict=True):
        longer, marks = _with_more(rank, program, len(traced.steps) - 1, ahead)
        programs.append(longer)
        ends.append(marks)
    times = replayed(replace(traced.job, programs=tuple(programs)))
    return max(
        float(end[marks[-1]] - end[marks[-2]]) for end, marks in zip(times.end, ends, strict=True)
    )


def _with_more(
    rank: TracedRank, program: Program, last: int, copies: int
) -> tuple[Program, list[int]]:
    """Return a program with the last step put behind it, and the rows that end its last steps."""
    rows = np.flatnonzero(rank.iteration == last)
    n, size = len(program), len(rows)
    place = np.full(n, -1, dtype=np.int64)
    place[rows] = np.arange(size)
    number = np.full(n, -1, dtype=np.int64)  # of a span, in the order of launches
    number[rank.spans] = np.arange(len(rank.spans))
    mine = rank.iteration[rank.launches] == last
    step_launches = int(mine.sum())
    spans = rank.spans.tolist()
    offsets, dependencies = program.offsets.tolist(), program.dependencies.tolist()
    launch_number = dict(
        zip(rank.launches[mine].tolist(), np.flatnonzero(mine).tolist(), strict=True)
    )
    # A step later every span has a number that is higher by the launches of a step.
    for copy in range(copies):
        first, shift = n + copy * size, (copy + 1) * step_launches
        spans += (place[rank.spans[mine]] + first).tolist()
        for row in rows.tolist():
            needed = set()
            for before in program.dependencies[program.offsets[row] : program.offsets[row + 1]]:
                if number[before] >= 0:
                    needed.add(spans[number[before] + shift])
                elif place[before] >= 0:
                    needed.add(int(place[before]) + first)
            if row in launch_number and (queued := launch_number[row] + shift - QUEUE) >= 0:
                needed.add(spans[queued])
            dependencies += sorted(needed)
            offsets.append(len(dependencies))
    more = np.tile(rows, copies)
    duration = program.duration[rows] * _to_median(rank, program, last)[rank.work[rows]]
    columns: dict[str, Any] = {
        name: np.concatenate((getattr(program, name), getattr(program, name)[more]))
        for name in ("name", "step", "kind", "lane", "role", "size", "priority", "microbatch")
    }
    longer = replace(
        program,
        duration=np.concatenate((program.duration, np.tile(duration, copies))),
        offsets=np.array(offsets, dtype=np.int64),
        dependencies=np.array(dependencies, dtype=np.int64),
        **columns,
    )
    end = int(rank.marks[-1])
    return longer, [end, *(n + copy * size + int(place[end]) for copy in range(copies))]


def _to_median(rank: TracedRank, program: Program, last: int) -> Floats:
    """Return for each kind of work its median over the steps, relative to the last one."""
    totals = np.zeros((last + 1, len(WORK)))
    known = rank.iteration >= 0
    np.add.at(totals, (rank.iteration[known], rank.work[known]), program.duration[known])
    own = totals[-1]
    return np.where(own > 0, np.median(totals, axis=0) / np.where(own > 0, own, 1.0), 1.0)
