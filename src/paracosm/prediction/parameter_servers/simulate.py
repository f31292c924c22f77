"""Workers and parameter servers in virtual time, compiled."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.compiled.loop import FULL, OVER, play_steps
from paracosm.prediction.parameter_servers.compiled.plan import CHUNKS, Plan, write_plan
from paracosm.prediction.parameter_servers.simulated import Simulated
from paracosm.prediction.parameter_servers.system import System
from paracosm.prediction.parameter_servers.workload import Workload

__all__ = ["simulate"]

Ints = npt.NDArray[np.int64]

AT_ONCE = 2_000_000
"""Events between two looks at who is watching: some tenths of a second."""


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
        until: virtual seconds; what would happen later does not.
        keep_chunks: whether every chunk's begin and end is kept.
        progress: called now and then with the virtual time.

    Returns:
        The times at which steps began and ended, and the chunks.

    Raises:
        ValueError: the workload has servers that the system lacks, or other workers draw.
    """
    if workload.servers > system.servers or len(drawn) != system.workers:
        raise ValueError(
            f"{len(drawn)} workers draw and {workload.servers} servers are used, of "
            f"{system.workers} and {system.servers}"
        )
    plan = write_plan(workload, system, drawn, most_chunks=1 << 16 if keep_chunks else 0)
    while True:
        reason = play_steps(plan, until, AT_ONCE)
        if reason == OVER:
            break
        if reason == FULL:
            plan = _with_room(plan)
        elif progress is not None:
            progress(float(plan.clock[0]))
    chunks = plan.chunks[: plan.counts[CHUNKS]]
    return Simulated(plan.step_begin, plan.step_end, chunks, plan.accepted)


def _with_room(plan: Plan) -> Plan:
    """Return the same plan with room for twice as many chunks."""
    more = np.zeros(2 * plan.chunks.size, plan.chunks.dtype)
    more[: plan.chunks.size] = plan.chunks
    return plan._replace(chunks=more)
