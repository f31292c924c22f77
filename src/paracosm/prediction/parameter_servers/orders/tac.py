"""TAC: the order of transfers by how long they and the computations take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.orders.needed import (
    needed_by_computations,
    properties,
)
from paracosm.simulation.system import Workload

__all__ = ["tac"]

Floats = npt.NDArray[np.float64]


def tac(workload: Workload, bandwidth: float) -> Floats:
    """Return priorities by op: one transfer after the other, the one first that overlaps best.

    "Timing-Aware Communication scheduling", Algorithm 3 of Hashemi et al., "TicTac", SysML 2019:
    transfer A goes before B if min(P_B, M_A) < min(P_A, M_B), where M is a transfer's own time and
    P what can be computed with it alone; if these are equal, the one with the lower M+. The
    properties of those left are worked out anew after each choice. The comparison is not
    transitive; those that are asked for are gone through in the order of their numbers, and of
    equal ones the first stays. A computation's time is the least in any step (their time oracle).

    What is not a transfer to the worker has 0.

    Args:
        workload: the steps.
        bandwidth: bytes/s of the link.
    """
    needed = needed_by_computations(workload)
    seconds = workload.size[needed.transfers] / bandwidth
    outstanding = np.ones(len(seconds), bool)
    priority = np.zeros(workload.ops)
    for place in range(len(seconds)):
        now = properties(needed, outstanding, seconds)
        P, M, M_plus = now.load.tolist(), seconds.tolist(), now.impending.tolist()
        left = np.flatnonzero(outstanding).tolist()
        best = left[0]
        for other in left[1:]:
            ours, theirs = min(P[best], M[other]), min(P[other], M[best])
            if theirs > ours or (theirs == ours and M_plus[other] < M_plus[best]):
                best = other
        priority[needed.transfers[best]] = place
        outstanding[best] = False
    return priority
