"""The cluster and the habits of a job with parameter servers, for any number of its workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Literal

import numpy as np
import numpy.typing as npt

from paracosm.cluster import Cluster
from paracosm.cluster.link import Star, Switch
from paracosm.errors import InputError
from paracosm.simulation.system import Ways, cluster_ways
from paracosm.units import parse_duration

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """What is imagined of a job, for any number of its workers.

    Attributes:
        order: name of the order of transfers, or the names of transfers in order.
        share_sigma: standard deviation of ln(share) of flows that compete for a port; 0: all get
            equal shares.
        backup: synchronous: workers that a step does not wait for; None: asynchronous.
        start: what is predicted beside the steady state.
        stagger: seconds between the begins of workers that start staggered; None: a step of one
            worker spread over all.
        measure: seconds of a measurement; None: as long as 50 steps take, but 10 of each worker.
    """

    ports: Ports  # of all servers and of as many workers as are ever asked for
    alpha: float = 0.0  # seconds a byte of parsing what was received
    beta: float = 0.0  # seconds of parsing anything received
    window: float = inf  # bytes of a stream's first turn; infinite without flow control
    order: str | Sequence[str] = "scheduled"
    cores: int = 0  # of each server, shared by the updates of all workers; 0: one for each worker
    background: Background | None = None  # traffic of others in the ports of servers
    share_sigma: float = 0.0
    backup: int | None = None
    start: Literal["steady", "together", "staggered"] = "steady"
    stagger: float | None = None
    measure: float | None = None
    steps: int | None = None  # simulated steps of each worker; None: as many as take a second or so
    repeats: int = 20  # simulated measurements after a start


@dataclass(frozen=True)
class Ports:
    """How fast nodes send, receive and compute."""

    ways: Ways  # between workers and servers
    speed: Floats  # of each worker's computing, (workers,)
    server_speed: Floats  # of each server's computing, (servers,)

    @property
    def workers(self) -> int:
        return len(self.speed)

    @property
    def server(self) -> Floats:
        """Bytes/s that each server can send, and receive, (servers,)."""
        capacity: Floats = self.ways.capacity[self.ways.ports].min(axis=0)
        return capacity

    @property
    def worker(self) -> Floats:
        """Bytes/s of the slowest link of each worker, (workers,)."""
        slowest: Floats = self.ways.bandwidth.min(axis=(0, 2))
        return slowest

    @property
    def latency(self) -> Floats:
        """Seconds from the last byte of a worker's transfer to its arrival, at most, (workers,)."""
        longest: Floats = self.ways.latency.max(axis=(0, 2))
        return longest

    def first(self, workers: int) -> Ports:
        return self._of(slice(workers))

    def only(self, worker: int) -> Ports:
        return self._of(slice(worker, worker + 1))

    def _of(self, chosen: slice) -> Ports:
        return replace(self, ways=self.ways.of_workers(chosen), speed=self.speed[chosen])


def ports_of(cluster: Cluster) -> Ports:
    """Return the ports of a star or a switch with servers on nodes of their own.

    Raises:
        InputError: another topology, no server, a server on a worker's node, links without a finite
            bandwidth.
    """
    topology = cluster.topology
    if not isinstance(topology, Star | Switch):
        raise InputError(
            f"cluster: throughput is predicted on a switch or a star, not on a {topology.name}"
        )
    if not cluster.servers:
        raise InputError("cluster: it has no server: parameter servers are what a profile is of")
    if cluster.placement != "own":
        raise InputError(
            "cluster: servers live on nodes of workers: a profile needs servers on nodes of their "
            "own (placement: own)"
        )
    if not isfinite(topology.link.bandwidth):
        raise InputError("cluster: its default link needs a finite bandwidth")
    for a, b, link in cluster.overrides:
        if not isfinite(link.bandwidth):
            raise InputError(f"cluster: the link between {a} and {b} needs a finite bandwidth")
    return Ports(
        ways=cluster_ways(cluster),
        speed=np.array([cluster.node(worker).speed for worker in cluster.workers]),
        server_speed=np.array([cluster.node(server).speed for server in cluster.servers]),
    )


MOST = 1_000_000
"""Changes of the background traffic in one simulation."""

EXAMPLE = 'write "2 flows", or "2 flows, 3s on, 10s off"'


@dataclass(frozen=True)
class Background:
    """Flows that share each port of a server, in both directions, like those of a worker each."""

    flows: int  # how many at a time
    on: float = float("inf")  # seconds for which they are there
    off: float = 0.0  # seconds for which they are then not; 0: they are always there


def parse_background(text: str) -> Background:
    """Return the background traffic that a text describes.

    Raises:
        InputError: it cannot be read, or its times are not above 0.
    """
    match = re.fullmatch(
        r"(\d+)(?:\s*flows?)?(?:\s*,\s*([^,]+?)\s+on\s*,\s*([^,]+?)\s+off)?", text.strip()
    )
    if match is None:
        raise InputError(f'cannot read "{text}" as background traffic: {EXAMPLE}')
    if match[2] is None:
        return Background(int(match[1]))
    on, off = parse_duration(match[2]), parse_duration(match[3])
    for what, seconds in (("on", on), ("off", off)):
        if not (seconds > 0 and np.isfinite(seconds)):
            raise InputError(f"the time {what} is above 0 and finite: {EXAMPLE}")
    return Background(int(match[1]), on, off)


def background_changes(background: Background, horizon: float) -> tuple[Floats, Ints]:
    """Return when the number of flows changes, in seconds, and what it is from then on.

    Raises:
        InputError: it changes more than `MOST` times until the horizon.
    """
    if not background.off:
        return np.zeros(1), np.full(1, background.flows)
    period = background.on + background.off
    count = np.ceil(horizon / period)
    if 2 * count > MOST:
        raise InputError(
            f"background: changes more than {MOST:,} times in the simulated time: take longer times"
        )
    begins = period * np.arange(int(count))
    times = np.stack([begins, begins + background.on], axis=1).ravel()
    return times, np.tile([background.flows, 0], len(begins))
