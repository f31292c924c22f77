"""A profiled job on an imagined cluster: the workload and the systems that are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.background import background_changes
from paracosm.prediction.parameter_servers.cluster_ports import Ports
from paracosm.prediction.parameter_servers.orders import transfer_order
from paracosm.prediction.parameter_servers.partition import shared_by
from paracosm.prediction.parameter_servers.prepare import prepare
from paracosm.prediction.parameter_servers.settings import Settings
from paracosm.prediction.parameter_servers.system import System
from paracosm.prediction.parameter_servers.windows import LEADING
from paracosm.prediction.parameter_servers.workload import Workload
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile

__all__ = ["ImaginedJob", "imagined_job"]

SHARES = 2
"""Of the random streams of a seed, that of uneven shares."""

FEWEST, MOST, OPS = 1000, 4000, 10_000_000
"""Steps of each worker that are simulated if nobody says how many: Li et al. (2020, section 4.1)
found 1,000 to be enough; more where that costs less than so many ops, half a second, in all."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ImaginedJob:
    """What the simulations for all numbers of workers have in common.

    Attributes:
        names: of the ops of the workload.
        workload: steps to draw from.
        priority: of transfers, as in `System`.
        settings: the cluster and the habits of its workers.
    """

    names: tuple[str, ...]
    workload: Workload
    priority: Floats | None
    settings: Settings

    def system(self, ports: Ports, start: Floats | None = None) -> System:
        """Return the system of all workers that have ports.

        Args:
            ports: of servers and workers.
            start: seconds at which each worker begins; all at once if not given.
        """
        settings = self.settings
        system = System(
            server_down=ports.server,
            server_up=ports.server,
            worker_down=ports.worker,
            worker_up=ports.worker,
            speed=ports.speed,
            latency=ports.latency,
            start=np.zeros(ports.workers) if start is None else start,
            window=settings.window,
            priority=self.priority,
            cores=settings.cores,
            backup=settings.backup,
        )
        if settings.background is None:
            return system
        steps = self.steps(ports.workers) + LEADING
        horizon = float(system.start.max()) + steps * self.longest_step(ports)
        times, flows = background_changes(settings.background, horizon)
        return replace(system, background_times=times, background_down=flows, background_up=flows)

    def with_shares(self, system: System, steps: int, seed: Sequence[int]) -> System:
        """Return the system with the shares that each worker's flows get where they are uneven.

        They are log-normal, anew for each step, as those of TCP connections in one queue are.

        Args:
            system: of any number of workers.
            steps: of each worker.
            seed: and what else tells this use of it from others.
        """
        if self.settings.uneven == 0:
            return system
        random = np.random.default_rng([*seed, SHARES])
        drawn = random.normal(0.0, self.settings.uneven, (system.workers, steps))
        return replace(system, weight=np.exp(drawn))

    def steps(self, workers: int) -> int:
        """Return how many steps of each worker are simulated."""
        if self.settings.steps is not None:
            return self.settings.steps
        affordable = OPS // (workers * self.workload.ops)
        return min(max(affordable, FEWEST), MOST)

    def drawn(self, workers: int, steps: int, seed: int | Sequence[int]) -> Ints:
        """Return which profiled step each simulated one is, (workers, steps).

        Those of the first workers are the same whatever the number of workers.
        """
        return np.random.default_rng(seed).integers(self.workload.steps, size=(workers, steps))

    def longest_step(self, ports: Ports) -> float:
        """Return seconds that no step takes longer than: nothing overlaps, and all share all."""
        workload, background = self.workload, self.settings.background
        flows = ports.workers + (0 if background is None else background.flows)
        rate = min(float(ports.server.min()) / flows, float(ports.worker.min()) / len(ports.server))
        computing = float(workload.seconds.sum(axis=1).max()) * ports.workers
        return (
            float(workload.size.sum()) / rate
            + computing / min(1.0, float(ports.speed.min()))
            + float(workload.gap.max())
            + float(ports.latency.max()) * workload.ops
        )

    def most_steps(self, ports: Ports, seconds: float) -> int:
        """Return a number of steps that no worker can exceed in so many seconds.

        Each step takes a worker's own resources, one after the other, for as long as the quickest
        profiled step does.
        """
        workload = self.workload
        computing = workload.seconds[:, workload.resource == WORKER].sum(axis=1)
        quickest = float((computing / float(ports.speed.max()) + workload.gap).min())
        carried = max(
            float(workload.size[workload.resource == way].sum()) for way in (DOWNLINK, UPLINK)
        )
        shortest = max(quickest, carried / float(ports.worker.max()))
        return ceil(seconds / shortest) + 1 if shortest > 0 else self.steps(ports.workers)


def imagined_job(profile: JobProfile, settings: Settings, seed: int) -> ImaginedJob:
    """Return a profiled job on an imagined cluster.

    Args:
        profile: of one worker.
        settings: the cluster and the habits of its workers; other servers than the profile's share
            its parameters anew.
        seed: of a random order.

    Raises:
        InputError: the order names what is no transfer; the profile cannot be shared by as many
            servers.
    """
    servers = len(settings.ports.server)
    if servers != profile.servers:
        profile = shared_by(profile, servers)
    workload = prepare(profile, alpha=settings.alpha, beta=settings.beta)
    updates = workload.resource == SERVER
    speed = np.where(updates, settings.ports.server_speed[workload.server], 1.0)
    workload = replace(workload, seconds=workload.seconds / speed)
    names = _names(profile, workload.ops)
    bandwidth = float(settings.ports.server.min())
    priority = transfer_order(settings.order, workload, names, bandwidth=bandwidth, seed=seed)
    return ImaginedJob(names, workload, priority, settings)


def _names(profile: JobProfile, ops: int) -> tuple[str, ...]:
    """Return the names of a workload's ops: those of the profile, then of what parses transfers."""
    transfers = np.flatnonzero(np.isin(profile.resource, (DOWNLINK, UPLINK)))
    parsed = (f"{profile.names[op]} parsed" for op in transfers)
    return (*profile.names, *parsed)[:ops]
