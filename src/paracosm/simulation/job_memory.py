"""How much memory the ranks of a job hold while it runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.simulation.job_schedule import JobSchedule

__all__ = ["memory_over_time", "peak_memory_of_ranks"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def memory_over_time(schedule: JobSchedule, rank: int) -> tuple[Floats, Ints]:
    """Return k instants in seconds, ascending, and the bytes that a rank holds from each one on.

    A task's allocations count from the instant at which it takes its lane, and what it releases is
    free when it ends; at one instant tasks do so in the order of their rows.
    """
    program = schedule.job.programs[schedule.job.program[rank]]
    tasks = schedule.tasks_of(rank)
    takes, gives = np.flatnonzero(program.allocated), np.flatnonzero(program.released)
    instants = np.concatenate((schedule.end[tasks][gives], schedule.arrive[tasks][takes]))
    change = np.concatenate((-program.released[gives], program.allocated[takes]))
    rows = np.concatenate((2 * gives + 1, 2 * takes))  # a task takes before it gives
    order = np.lexsort((rows, instants))
    held = program.resident + np.cumsum(change[order])
    return (
        np.concatenate(([0.0], instants[order])),
        np.concatenate(([program.resident], held)).astype(np.int64),
    )


def peak_memory_of_ranks(schedule: JobSchedule) -> Ints:
    """Return the most bytes that each of R ranks holds at a time."""
    peaks = [int(memory_over_time(schedule, rank)[1].max()) for rank in schedule.representative]
    return np.array(peaks, dtype=np.int64)[schedule.class_of]
