"""What the worker's computations need of the transfers to it: the ground of TIC and TAC.

S. H. Hashemi, S. A. Jyothi, R. H. Campbell, "TicTac: Accelerating Distributed Deep Learning with
Communication Scheduling", SysML 2019, section 4.1 and Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.profiling.jobs import DOWNLINK, WORKER
from paracosm.profiling.jobs.dependencies import in_order
from paracosm.simulation.system import Workload

__all__ = ["Needed", "Properties", "needed_by_computations", "properties"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Needed:
    """Groups of computations that need the same transfers, whether at first or second hand.

    Attributes:
        transfers: ops, as numbered in the workload, (transfers,).
        needs: whether each group needs each transfer (`op.dep` in the paper), (groups, transfers).
        seconds: that all computations of each group take, (groups,).
    """

    transfers: Ints
    needs: Bools
    seconds: Floats


@dataclass(frozen=True)
class Properties:
    """What Algorithm 1 says of each outstanding transfer, in seconds.

    Attributes:
        load: P, the computing that can begin with this transfer alone ("directly-dependent compute
            load").
        impending: M+, the least of all transfers together that a computation needs beside this
            one ("impending communication load"); infinite if there is none.
    """

    load: Floats
    impending: Floats


def needed_by_computations(workload: Workload) -> Needed:
    """Return which transfers to the worker its computations need, and the least time these took."""
    transfers = np.flatnonzero(workload.resource == DOWNLINK)
    needs = np.zeros((workload.ops, len(transfers)), bool)
    for op in in_order(workload.waits, workload.first_dependent, workload.dependents):
        if workload.resource[op] == DOWNLINK:
            needs[op] = transfers == op
        first, last = workload.first_dependent[op : op + 2]
        needs[workload.dependents[first:last]] |= needs[op]
    computations = np.flatnonzero(workload.resource == WORKER)
    groups, group = np.unique(needs[computations], axis=0, return_inverse=True)
    seconds = workload.seconds[:, computations].min(axis=0)
    total = np.zeros(len(groups))
    np.add.at(total, group.reshape(-1), seconds)
    return Needed(transfers, groups, total)


def properties(needed: Needed, outstanding: Bools, seconds: Floats) -> Properties:
    """Return the properties of transfers while some are outstanding (`UpdateProperties`).

    Args:
        needed: by whom.
        outstanding: which transfers have not been given a priority, (transfers,).
        seconds: that each transfer takes, (transfers,).
    """
    needs = needed.needs & outstanding
    several = needs.sum(axis=1) > 1
    alone = needs.sum(axis=1) == 1
    together = needs @ seconds
    return Properties(
        load=needs[alone].T @ needed.seconds[alone],
        impending=np.where(needs[several], together[several, None], np.inf).min(
            axis=0, initial=np.inf
        ),
    )
