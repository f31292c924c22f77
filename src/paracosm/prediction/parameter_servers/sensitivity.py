"""Which resource limits the throughput: the one that would help most if it were faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from paracosm.prediction.parameter_servers.imagined import ImaginedJob
from paracosm.prediction.parameter_servers.steady import Change, steady_state
from paracosm.profiling.jobs import DOWNLINK, RESOURCES, SERVER, UPLINK, WORKER
from paracosm.simulation.system import DOWN, UP, System, Workload

__all__ = ["NOTHING", "limiting", "sensitivity"]

SHARE = 4
"""Steps that are simulated to see what a faster resource brings: one of so many."""


NOTHING = 0.01
"""Relative gain of throughput that is no more than noise."""


def sensitivity(job: ImaginedJob, workers: int, seed: int) -> dict[str, float]:
    """Return by how much throughput would grow if a resource were twice as fast, by its name.

    All of the cluster's: the links of a direction at servers and workers, all workers, all servers.
    Relative to the throughput, all simulated with the same steps drawn.

    Args:
        job: what the workers do, on which cluster.
        workers: how many of the cluster's, the first ones.
        seed: of the steps that they draw.
    """
    steps = max(job.steps(workers) // SHARE, 1)

    def rate(change: Change | None) -> float:
        return steady_state(job, workers, seed, steps=steps, change=change).steps_per_second

    base = rate(None)
    return {
        RESOURCES[resource]: rate(partial(_twice_as_fast, resource)) / base - 1
        for resource in (DOWNLINK, WORKER, UPLINK, SERVER)
    }


def limiting(gains: Mapping[str, float], busy: Mapping[str, float]) -> str:
    """Return the resource that would bring most; of several, the first of `RESOURCES`.

    Where none would bring more than simulations differ by, as where both directions are full, it is
    the busiest one.

    Args:
        gains: as `sensitivity` returns them.
        busy: shares of time, by resource.
    """
    most = gains if max(gains.values()) > NOTHING else busy
    return max(gains, key=lambda resource: most[resource])


def _twice_as_fast(resource: int, workload: Workload, system: System) -> tuple[Workload, System]:
    if resource == DOWNLINK:
        return workload, replace(system, ways=system.ways.twice_as_fast(DOWN))
    if resource == UPLINK:
        return workload, replace(system, ways=system.ways.twice_as_fast(UP))
    if resource == WORKER:
        return workload, replace(system, speed=2 * system.speed)
    seconds = np.where(workload.resource == SERVER, workload.seconds / 2, workload.seconds)
    return replace(workload, seconds=seconds), system
