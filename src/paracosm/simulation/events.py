"""Replay a task graph event by event: resources that choose, and links that are shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs import TaskGraph
from paracosm.simulation.deadlock import deadlock_message
from paracosm.simulation.task_check import check_tasks

__all__ = ["TaskTimes", "replay_tasks"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TaskTimes:
    """Instants of the n tasks of a task graph, in picoseconds from the beginning.

    Attributes:
        arrive: when each task takes its resource; one on none arrives when it is ready.
        begin: when it goes on; later than `arrive` only for tasks of a meeting.
        end: when it has ended and its resource is free.
    """

    arrive: Ints
    begin: Ints
    end: Ints

    @property
    def makespan(self) -> int:
        """The instant in picoseconds at which the last task has ended; 0 of an empty graph."""
        return int(self.end.max(initial=0))


def replay_tasks(tasks: TaskGraph, label: Callable[[int], str] | None = None) -> TaskTimes:
    """Return when every task runs.

    A task is ready when all that it depends on have ended, and arrives when its resource is free
    and chooses it. `TaskGraph` says what it does from then on, and the compiled loop
    (`events_kernel.py`) what comes before what within an instant. Everything is decided by times,
    priorities and rows, so that the same tasks have the same instants on every machine.

    Args:
        tasks: what to replay.
        label: what messages call the task of a row; "task 7" where it is not given.

    Raises:
        InputError: arrays that contradict one another; tasks that wait for one another for ever,
            with a cycle of them; instants after 2**63 - 1 ps (106 days).
    """
    # Numba, and what it compiles, is loaded when it is needed.
    from paracosm.simulation.events_arrays import arrange
    from paracosm.simulation.events_kernel import LATE, play

    check_tasks(tasks)
    plan = arrange(_of_exact_types(tasks))
    status = play(plan)
    times = TaskTimes(plan.arrive, plan.begin, plan.end)
    if status == LATE:
        raise InputError(
            "replay: tasks end after 2**63 - 1 picoseconds (106 days), which is as far as the "
            "clock goes: shorten durations, or check their unit"
        )
    if len(tasks) and times.end.min() < 0:
        name = label or "task {}".format
        raise InputError(deadlock_message(tasks, times.arrive, times.end, name))
    return times


_TYPES = {
    **dict.fromkeys(("resource", "priority", "meeting", "route", "routes", "policy"), np.int32),
    **dict.fromkeys(("duration", "offsets", "dependencies", "awaited", "route_offsets"), np.int64),
    **dict.fromkeys(("demand", "bandwidth"), np.float64),
}


def _of_exact_types(tasks: TaskGraph) -> TaskGraph:
    """Return the task graph with the arrays that the loop is compiled for."""
    return TaskGraph(
        **{
            column.name: np.ascontiguousarray(getattr(tasks, column.name), _TYPES[column.name])
            for column in fields(tasks)
            if column.name in _TYPES
        },
        sharing=tasks.sharing,
    )
