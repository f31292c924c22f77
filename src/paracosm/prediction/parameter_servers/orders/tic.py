"""TIC: the order of transfers by what computations need, whatever anything takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.orders.needed import (
    needed_by_computations,
    properties,
)
from paracosm.simulation.system import Workload

__all__ = ["tic"]

Floats = npt.NDArray[np.float64]


def tic(workload: Workload) -> Floats:
    """Return priorities by op: transfers that fewer others must come with go first.

    "Timing-Independent Communication scheduling", Algorithm 2 of Hashemi et al., "TicTac", SysML
    2019: a transfer's priority is its impending communication load M+, where each transfer takes 1
    and computations nothing. Those that nothing needs together with others come last. Ties stay as
    they are, to be sent in the order in which they are asked for.

    Here M+ is numbered from 0; what is not a transfer to the worker has 0.
    """
    needed = needed_by_computations(workload)
    everything = np.ones(len(needed.transfers), bool)
    impending = properties(needed, everything, np.ones(len(needed.transfers))).impending
    priority = np.zeros(workload.ops)
    priority[needed.transfers] = np.unique(impending, return_inverse=True)[1]
    return priority
