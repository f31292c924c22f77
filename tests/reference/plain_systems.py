"""Systems that are described without a cluster: ports of servers and workers, and their rates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paracosm.simulation.system import MOST_STATIONS, Routes, System

Floats = npt.NDArray[np.float64]


def port_routes(
    server_down: Floats,
    server_up: Floats,
    worker_down: Floats,
    worker_up: Floats,
    latency: Floats | None = None,
) -> Routes:
    """Return routes through a port of each server and each worker in each direction, fairly shared.

    Args:
        server_down: bytes/s that each server can send, (S,).
        server_up: bytes/s that each server can receive, (S,).
        worker_down: bytes/s that each worker can receive, (W,).
        worker_up: bytes/s that each worker can send, (W,).
        latency: seconds after the bytes of each worker's messages, (W,); none if not given.
    """
    servers, workers = len(server_down), len(worker_down)
    place = np.arange(2 * (servers + workers)).reshape(-1)
    theirs, own = place[: 2 * servers].reshape(2, -1), place[2 * servers :].reshape(2, -1)
    hops = np.full((2, workers, servers, MOST_STATIONS), -1, np.int64)
    hops[..., 0] = theirs[:, None, :]
    hops[..., 1] = own[:, :, None]
    capacity = np.concatenate([server_down, server_up, worker_down, worker_up]).astype(float)
    after = np.zeros(workers) if latency is None else latency
    return Routes(
        sharing="fair",
        capacity=capacity,
        hops=hops,
        bandwidth=capacity[hops[..., :2]].min(axis=-1),
        held=np.zeros((2, workers, servers)),
        latency=np.broadcast_to(after[None, :, None], (2, workers, servers)),
        ports=theirs,
    )


def plain_system(
    workers: int,
    servers: int,
    bandwidth: float,
    *,
    latency: float = 0.0,
    window: float = float("inf"),
    start: Floats | Sequence[float] | None = None,
) -> System:
    """Return alike workers and servers, all ports of one bandwidth in each direction.

    Args:
        workers, servers: how many.
        bandwidth: bytes/s.
        latency: seconds after the bytes of a message.
        window: bytes, as in `System`.
        start: seconds, as in `System`; all at once if not given.
    """
    theirs, own = np.full(servers, bandwidth), np.full(workers, bandwidth)
    routes = port_routes(theirs, theirs, own, own, np.full(workers, latency))
    begin = np.zeros(workers) if start is None else np.asarray(start, float)
    return System(routes, np.ones(workers), begin, window)
