"""The makespan of a static job with other durations: one pass over a stored order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.errors import InputError
from paracosm.jobs.check import check_job
from paracosm.jobs.expand import PICOSECOND
from paracosm.jobs.job import Job
from paracosm.simulation.folding import fold_ranks, unfolded
from paracosm.simulation.static import Played, chain_sums, play_static
from paracosm.simulation.straggler_penalty import StoredOrder, store_order

__all__ = ["Retiming", "prepare_retiming"]

Ints = npt.NDArray[np.int64]


class Retiming:
    """A static job, ready to be replayed with other durations.

    Args:
        played: the job as it was played.
        order: its stored order.
    """

    def __init__(self, played: Played, order: StoredOrder) -> None:
        self._played, self._order = played, order
        self._end = np.zeros(len(order.kind), dtype=np.int64)

    @property
    def tasks(self) -> int:
        """How many durations there are: those of the tasks of all units, in their order."""
        return int(self._played.arrays.first_row[-1])

    def makespan(self, lengths: Ints) -> float:
        """Return the seconds that the job takes with these picoseconds of its tasks.

        The duration of a collective is that of the member which had the longest before.

        Raises:
            InputError: there are more or fewer than the job has tasks; an instant below 0, or after
                2**63 - 1 ps (106 days).
        """
        if lengths.shape != (self.tasks,):
            raise InputError(f"{len(lengths)} durations for a job of {self.tasks} tasks")
        arrays, order = self._played.arrays, self._order
        _retime(
            order.chain,
            order.offsets,
            order.predecessors,
            chain_sums(arrays.chains, arrays.program, lengths),
            self._end,
        )
        if self._end.min(initial=0) < 0:  # a sum that is too large has wrapped around
            raise InputError(
                "a duration is negative, or the job lasts more than 2**63 - 1 picoseconds"
            )
        return float(self._end.max(initial=0)) * PICOSECOND


def prepare_retiming(job: Job, *, fold: bool = False) -> Retiming:
    """Play a static job once and keep the order.

    Args:
        job: what runs.
        fold: whether alike ranks have one set of durations.

    Raises:
        InputError: the job cannot be played, or not in a fixed order.
    """
    check_job(job)
    if not job.is_static:
        raise InputError("durations decide in which order this job's tasks run: replay it anew")
    played = play_static(job, fold_ranks(job) if fold else unfolded(job))
    return Retiming(played, store_order(played))


@compiled
def _retime(chain: Any, offsets: Any, predecessors: Any, duration: Any, end: Any) -> None:
    """Fill the instants of a stored order, in picoseconds."""
    for node in range(end.size):
        latest = 0
        for place in range(offsets[node], offsets[node + 1]):
            latest = max(latest, end[predecessors[place]])
        if chain[node] >= 0:
            latest += duration[chain[node]]
        end[node] = latest
