"""The queueing model of Lin et al.: phases of a step, one after the other, on shared resources."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.mean_value_analysis import mean_value_analysis
from paracosm.prediction.parameter_servers.phases import Phases

__all__ = ["lin"]

Floats = npt.NDArray[np.float64]


def lin(phases: Phases, workers: int) -> Floats:
    """Return the steps/s of 1, 2, ... workers, (workers,).

    Lin, Paolieri, Chou, Golubchik (MASCOTS 2018), "A Model-Based Approach to Streamlining
    Distributed Training for Asynchronous SGD": a closed queueing network in which every worker goes
    through downlink and uplink, whose bandwidth all share, the server, and its own computing,
    solved exactly. As Li et al. (2020, sections 1 and 4.4) use it, each phase lasts as it does for
    one worker. Several servers have links of their own, on which a worker spends its phases in
    the proportion of their bytes.

    Args:
        phases: of one worker.
        workers: up to how many.
    """
    total = float(phases.carried.sum())
    shares = phases.carried / total if total > 0 else np.ones(1)
    shared = np.array([phases.downlink, phases.uplink, phases.server])
    demands = np.outer(shares, shared).ravel()
    return mean_value_analysis(demands.tolist(), phases.worker + phases.rest, workers)
