"""The cluster that a job with parameter servers is imagined on, as the simulation sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["System", "plain_system"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class System:
    """Workers, servers, ports and how they are shared.

    A worker has at most one transfer in flight from each server and one to each. Those of one
    direction share the ports of servers and workers max-min fairly.

    Attributes:
        server_down: bytes/s that each server can send.
        server_up: bytes/s that each server can receive.
        worker_down: bytes/s that each worker can receive.
        worker_up: bytes/s that each worker can send.
        speed: of each worker's computing, 1 as profiled.
        latency: seconds that transfers of each worker take beside their bytes, which keep no port
            busy.
        start: seconds at which each worker begins its first step.
        window: bytes of a stream that are sent before others have their turn (HTTP/2's flow
            control window WIN); infinite without flow control.
        priority: by op: of transfers that wait for their first turn the lowest goes first, and
            those that wait for their second turn come last; None: first come, first served.
        cores: of each server, shared by the updates of all workers; 0: a core for each worker.
        backup: synchronous: an iteration ends when all workers but so many have ended their steps;
            None: asynchronous.
        background_times: seconds at which the number of background flows changes, ascending.
        background_down: flows beside the workers' in each server's sending port from then on.
        background_up: the same for the receiving port.
        weight: of each worker's transfers in each of its steps, (workers, steps): where several
            share a port, rates are in proportion to it; None: alike.
    """

    server_down: Floats
    server_up: Floats
    worker_down: Floats
    worker_up: Floats
    speed: Floats
    latency: Floats
    start: Floats
    window: float = float("inf")
    priority: Floats | None = None
    cores: int = 0
    backup: int | None = None
    background_times: Floats = field(default_factory=lambda: np.zeros(0))
    background_down: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    background_up: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    weight: Floats | None = None

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.speed)

    @property
    def servers(self) -> int:
        """How many parameter servers there are."""
        return len(self.server_down)


def plain_system(
    workers: int,
    servers: int,
    bandwidth: float,
    *,
    window: float = float("inf"),
    start: Floats | None = None,
) -> System:
    """Return alike workers and servers, all ports of one bandwidth in each direction.

    Args:
        workers, servers: how many.
        bandwidth: bytes/s.
        window: bytes, as in `System`.
        start: seconds, as in `System`; all at once if not given.
    """
    ports = np.full(servers, bandwidth)
    own = np.full(workers, bandwidth)
    begin = np.zeros(workers) if start is None else start
    return System(ports, ports, own, own, np.ones(workers), np.zeros(workers), begin, window)
