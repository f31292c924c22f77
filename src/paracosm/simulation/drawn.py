"""Durations that vary from rank to rank and from task to task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.errors import InputError
from paracosm.jobs import KINDS, Job
from paracosm.jobs.expand import picoseconds
from paracosm.rng import SimulationStream, stream_keys
from paracosm.timing.compiled import normal_quantile, uniform

__all__ = ["check_duration_cv", "drawn_durations"]

Ints = npt.NDArray[np.int64]

TASK = KINDS.index("task")


def drawn_durations(job: Job, duration_cv: float, seed: int) -> Ints:
    """Return picoseconds of the tasks of all ranks, one rank after the other.

    What ranks do by themselves is lognormal around its duration, with the coefficient of
    variation `duration_cv`; communication is as it is. Every rank has a random stream of its own,
    and every task a number in it.

    Raises:
        InputError: a duration that cannot be.
    """
    check_duration_cv(duration_cv, seed)
    sigma = math.sqrt(math.log1p(duration_cv**2))
    keys = stream_keys(seed, SimulationStream.TASKS, job.ranks)
    known: dict[tuple[int, float], Ints] = {}
    columns = []
    for rank, key in enumerate(keys):
        own, speed = int(job.program[rank]), float(job.speed[rank])
        if (own, speed) not in known:
            known[own, speed] = picoseconds(job.programs[own], speed, job.names)
        lengths = known[own, speed].copy()
        _vary(lengths, job.programs[own].kind, key, sigma)
        columns.append(lengths)
    return np.concatenate([*columns, np.zeros(0, dtype=np.int64)])


def check_duration_cv(duration_cv: float, seed: int) -> None:
    """Raise InputError for a relative standard deviation or a seed that cannot be."""
    if not 0 <= duration_cv <= 1:
        raise InputError(f"a coefficient of variation is from 0 to 1, not {duration_cv}")
    if seed < 0:
        raise InputError(f"a seed is a whole number from 0 on, not {seed}")


@compiled
def _vary(lengths: Any, kind: Any, key: Any, sigma: float) -> None:
    """Multiply the durations of a rank's own tasks by factors of mean 1."""
    for row in range(lengths.size):
        if kind[row] == TASK:
            normal = normal_quantile(uniform(key, row))
            lengths[row] = np.int64(round(lengths[row] * math.exp(sigma * normal - sigma**2 / 2)))
