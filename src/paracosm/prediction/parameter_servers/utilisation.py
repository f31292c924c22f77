"""How busy links, workers and servers are at a throughput."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.profiling.jobs import DOWNLINK, RESOURCES, SERVER, UPLINK, WORKER
from paracosm.simulation.system import DOWN, UP, System, Workload

__all__ = ["utilisation"]

Floats = npt.NDArray[np.float64]


def utilisation(workload: Workload, system: System, rates: Floats) -> dict[str, Floats]:
    """Return the shares of time for which resources are busy, by name from `RESOURCES`.

    A direction of a server's port: bytes over what it could carry; the workers: the mean over
    their computing; a server: updates over the cores that they may use, in [0, 1] but for the noise
    of drawing steps. Background traffic does not count.

    Args:
        workload, system: as simulated.
        rates: steps/s of each worker, (workers,).

    Returns:
        Arrays, (servers,); of the workers (1,).
    """
    total = float(rates.sum())
    seconds = workload.seconds.mean(axis=0)

    def by_server(resource: int, amounts: Floats) -> Floats:
        chosen = workload.resource == resource
        return np.bincount(
            workload.server[chosen], weights=amounts[chosen], minlength=system.servers
        ).astype(np.float64)

    computing = float(seconds[workload.resource == WORKER].sum())
    ports = system.ways.capacity[system.ways.ports]
    found = {
        DOWNLINK: total * by_server(DOWNLINK, workload.size) / ports[DOWN],
        WORKER: np.array([float((rates * computing / system.speed).mean())]),
        UPLINK: total * by_server(UPLINK, workload.size) / ports[UP],
        SERVER: total * by_server(SERVER, seconds) / (system.cores or system.workers),
    }
    return {RESOURCES[resource]: busy for resource, busy in found.items()}
