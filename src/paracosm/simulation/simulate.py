"""Workers and parameter servers in virtual time, compiled."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Bools, Floats, Ints
from paracosm.compiled_references import Referenced
from paracosm.errors import InputError
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.heaps import NEVER
from paracosm.simulation.steps_kernel import FULL, LATE, OVER, play_steps
from paracosm.simulation.steps_plan import CHUNKS, CLOCK, Plan, write_plan
from paracosm.simulation.system import System, Workload

CHUNK = np.dtype(
    [*((name, "i4") for name in ("worker", "step", "op", "turn")), ("begin", "f8"), ("end", "f8")]
)
"""A piece of an op without interruption: whose, of the worker's step with this number (from 0), 0
for the op's first turn and 1 for its second, from when to when in seconds."""

AT_ONCE = 2_000_000
"""Events between two looks at who is watching: some tenths of a second."""


@dataclass(frozen=True)
class Simulated:
    """Virtual times of simulated steps."""

    step_begin: Floats  # seconds, (workers, steps of each); NaN of steps that were not begun
    # seconds, (workers, steps of each); NaN of steps that did not end. The next step begins the gap
    # later.
    step_end: Floats
    # in the order of their ends, an array of `CHUNK`; empty if they were not kept
    chunks: npt.NDArray[np.void]
    # synchronous mode: whether a step's gradients were among the first; all True in asynchronous
    # mode, (workers, steps)
    accepted: Bools


def simulate(
    workload: Workload,
    system: System,
    drawn: Ints,
    *,
    until: float = math.inf,
    keep_chunks: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Simulated:
    """Simulate the steps of all workers: Algorithm 3.1 of Li et al. (2020), extended.

    Args:
        workload: steps to draw from.
        system: the cluster.
        drawn: which step of the workload worker w's k-th step is, (workers, steps).
        until: virtual seconds; later events do not happen.
        keep_chunks: whether every chunk's begin and end is kept.
        progress: called now and then with the virtual time.

    Raises:
        InputError: virtual time passes 2**63 - 1 ps (106 days).
        ValueError: the workload has servers that the system lacks, or other workers draw.
    """
    plan = write_plan(workload, system, drawn, most_chunks=1 << 16 if keep_chunks else 0)
    while (reason := play_on(plan, until)) != OVER:
        if reason == FULL:
            plan = _with_room(plan)
        elif progress is not None:
            progress(plan.counts[CLOCK] / 1e12)
    chunks: npt.NDArray[np.void] = plan.chunks[: plan.counts[CHUNKS]].astype(CHUNK)
    chunks["begin"] /= 1e12
    chunks["end"] /= 1e12
    return Simulated(_seconds(plan.step_begin), _seconds(plan.step_end), chunks, plan.accepted)


def play_on(plan: Plan, until: float) -> int:
    """Play for so many virtual seconds, and return why that is over, `OVER` or the like."""
    last = LAST_INSTANT - 1 if until * 1e12 >= LAST_INSTANT else int(until * 1e12)
    reason: int = play_steps(Referenced(plan), last, AT_ONCE)
    if reason == LATE:
        raise InputError(
            "simulation: steps end after 2**63 - 1 picoseconds (106 days), the range of the "
            "clock: simulate fewer steps, or check the unit of durations"
        )
    return reason


def _seconds(picoseconds: Ints) -> Floats:
    return np.where(picoseconds == NEVER, np.nan, picoseconds / 1e12)


def _with_room(plan: Plan) -> Plan:
    """Return the same plan with room for twice as many chunks."""
    more = np.zeros(2 * plan.chunks.size, plan.chunks.dtype)
    more[: plan.chunks.size] = plan.chunks
    return plan._replace(chunks=more)
