"""The cluster of a job with parameter servers, as the simulation uses it."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Floats, Ints
from paracosm.cluster import Cluster
from paracosm.cluster.link import Sharing
from paracosm.network import Stations

DOWNLINK, WORKER, UPLINK, SERVER = range(4)
"""What an op keeps busy: the way from a server, the worker itself, the way to a server, a server's
core."""

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Workload:
    """Steps of one worker without the effects of its link."""

    resource: Codes  # by op, `DOWNLINK`, `WORKER`, `UPLINK` or `SERVER`
    server: Ints  # by op, which parameter server; 0 on the worker
    size: Floats  # by op, bytes that the link carries; 0 of computations
    # of computing, (steps, ops); of transfers: from the last byte until those who wait may begin,
    # which keeps nothing busy
    seconds: Floats
    waits: Ints  # by op, how many ops it waits for
    first_dependent: Ints  # `dependents[first_dependent[i]:first_dependent[i + 1]]` wait for op i
    dependents: Ints  # indices of ops; of one op in the order in which they are handed on
    roots: Ints  # (steps, roots): ops that wait for none, in the order in which they are handed on
    release: Floats  # seconds from the step's begin at which each of `roots` is handed on
    gap: Floats  # (steps,): seconds from the end of the last op to the begin of the next step

    @property
    def ops(self) -> int:
        return len(self.resource)

    @property
    def steps(self) -> int:
        return len(self.seconds)

    @property
    def servers(self) -> int:
        return int(self.server.max(initial=0)) + 1


DOWN, UP = range(2)
"""Directions: from servers to workers, and from workers to servers."""

MOST_STATIONS = 5
"""On one way: four ports where links are half-duplex, and a link that is slower than they."""


@dataclass(frozen=True)
class Routes:
    """The paths of messages from S servers to W workers and back."""

    sharing: Sharing  # see `paracosm.network`
    capacity: Floats  # bytes/s of each station
    hops: Ints  # the stations of each route, then -1, (2, W, S, 5); by direction first
    bandwidth: Floats  # bytes/s of the links, (2, W, S)
    held: Floats  # seconds that a message holds its stations in addition to its bytes, (2, W, S)
    latency: Floats  # seconds from the end of that until it has arrived, (2, W, S)
    ports: Ints  # the stations of each server that others share who are in the background, (2, S)

    def of_workers(self, chosen: slice) -> "Routes":
        """Return the routes of some of the workers."""
        return replace(
            self,
            hops=self.hops[:, chosen],
            bandwidth=self.bandwidth[:, chosen],
            held=self.held[:, chosen],
            latency=self.latency[:, chosen],
        )

    def twice_as_fast(self, direction: int) -> "Routes":
        """Return the routes with all stations and links of a direction twice as fast.

        If links are half-duplex, both directions have the same stations.
        """
        capacity, bandwidth = self.capacity.copy(), self.bandwidth.copy()
        numbers = np.unique(self.hops[direction])
        capacity[numbers[numbers >= 0]] *= 2
        bandwidth[direction] *= 2
        return replace(self, capacity=capacity, bandwidth=bandwidth)

    @property
    def is_half_duplex(self) -> bool:
        """Whether some station is on routes of both directions."""
        return bool(np.intersect1d(*self.hops).max(initial=-1) >= 0)

    def by_worker(self) -> Floats:
        """Return all numbers that distinguish the routes of workers, (W, ...)."""
        capacity = np.append(self.capacity, np.inf)[self.hops]
        numbers = (self.bandwidth, self.held, self.latency, *np.moveaxis(capacity, -1, 0))
        return np.column_stack([number[way] for number in numbers for way in (DOWN, UP)])

    def stations(self) -> list[tuple[int, ...]]:
        """Return the stations of every way, by direction, worker and server."""
        rows = self.hops.reshape(-1, MOST_STATIONS).tolist()
        return [tuple(at for at in row if at >= 0) for row in rows]


def cluster_routes(cluster: Cluster) -> Routes:
    """Return the routes between all workers and all servers of a cluster."""
    stations = Stations(cluster)
    workers, servers = cluster.workers, cluster.servers
    hops = np.full((2, len(workers), len(servers), MOST_STATIONS), -1, np.int64)
    bandwidth, held, latency = (np.zeros((2, len(workers), len(servers))) for _ in range(3))
    ports = np.full((2, len(servers)), -1, np.int64)
    for w, worker in enumerate(workers):
        for s, server in enumerate(servers):
            for way, ends in ((DOWN, (server, worker)), (UP, (worker, server))):
                connection = stations.connect(*ends)
                link, own = connection.link, connection.stations
                hops[way, w, s, : len(own)] = own
                bandwidth[way, w, s] = link.bandwidth
                held[way, w, s] = link.occupancy(0.0)
                latency[way, w, s] = link.propagation(0.0)
                if own:  # the first one sends, the second one receives
                    ports[way, s] = own[way]
    return Routes(
        sharing=stations.sharing,
        capacity=np.array(stations.capacity),
        hops=hops,
        bandwidth=bandwidth,
        held=held,
        latency=latency,
        ports=ports,
    )


@dataclass(frozen=True)
class System:
    """Workers, servers, the routes between them, and how they schedule and synchronise.

    A worker has at most one transfer in flight from each server and one to each.
    """

    routes: Routes  # between workers and servers
    speed: Floats  # of each worker's computing, 1 as profiled
    start: Floats  # seconds at which each worker begins its first step
    # bytes of a stream that are sent before others have their turn (HTTP/2's flow control window
    # WIN); infinite without flow control
    window: float = float("inf")
    # by op: of transfers that wait for their first turn the lowest goes first, and those that wait
    # for their second turn come last; None: first come, first served
    priority: Floats | None = None
    cores: int = 0  # of each server, for the updates of all workers; 0: a core for each worker
    # an iteration ends when all workers but so many have ended their steps; None: asynchronous
    backup: int | None = None
    # how many steps a worker may have ended more than the slowest one when it begins another, with
    # the gap before it; None: as many as it can
    slack: int | None = None
    # seconds at which the number of background flows changes, ascending
    background_times: Floats = field(default_factory=lambda: np.zeros(0))
    # background flows in each server's sending port from then on
    background_down: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    # the same for the receiving port
    background_up: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    # of each worker's transfers in each of its steps, (workers, steps): where several share a port,
    # rates are in proportion to it; None: equal
    weight: Floats | None = None
    # workers that fail: mean seconds between failures of one, seconds until it is back, and the key
    # of each worker's random stream; no keys: none fails
    mtbf: float = float("inf")
    restart: float = 0.0
    failure_keys: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def workers(self) -> int:
        return len(self.speed)

    @property
    def servers(self) -> int:
        return len(self.routes.ports[DOWN])
