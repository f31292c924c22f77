"""What the workers and servers of one run share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

from paracosm.cluster import Cluster, ring_all_reduce
from paracosm.engine import Simulator
from paracosm.rng import TrainingStream, generator
from paracosm.timing import Constant, Distribution
from paracosm.training.all_reduces import AllReduces, Combine
from paracosm.training.clients import Clients, Participation
from paracosm.training.compression.messages import Compression
from paracosm.training.store import Contribution, Numerics

Topology = Literal["server", "all-reduce", "peers", "local"]


class Team:
    """What the workers and servers of one run share."""

    elastic = False  # whether updates do without workers that are away

    def __init__(
        self,
        sim: Simulator,
        cluster: Cluster,
        topology: Topology,
        numerics: Numerics,
        seed: int,
        compute: Distribution | None,
        update_time: Distribution,
        batch: int,  # examples of a minibatch, of which `compute` is the duration
        batches: Sequence[int],  # of each worker
        last_update: int,  # how many updates a store gets
        clients: Clients | None = None,  # who take turns at the workers
        compression: Compression | None = None,  # of what workers send
    ) -> None:
        self.clients = clients
        self.topology = topology
        self.numerics = numerics
        self.batches = batches
        self.batch = batch
        self.last_update = last_update
        self.workers = cluster.workers  # their names, in the order of their indices
        self.servers = cluster.servers if topology == "server" else ("",)
        self.initial = numerics.initial()  # the flat vector of parameters
        self.dropped = 0  # gradients that were not applied
        self.is_over = False
        self.kept: dict[int, dict[str, Any]] = {}  # of clients, see `TrainingWorker.kept`
        self._cluster = cluster
        self.seed = seed
        self._compute = compute
        self._update_time = update_time
        self.compression = compression
        self.push_sizes = numerics.sizes if compression is None else compression.sizes
        self.bytes_sent = 0.0  # in pushes received, answers sent, all-reduces that have ended

        @cache
        def seconds(part: int, ring: tuple[str, ...]) -> float:
            if len(ring) < 2:
                return 0.0
            ways = zip(ring, (*ring[1:], ring[0]), strict=True)
            links = [cluster.link(source, target) for source, target in ways]
            if compression is not None:
                return compression.all_reduce_time(part, links)
            return ring_all_reduce(len(links), numerics.sizes[part], links)

        self._all_reduce_seconds = seconds
        self._begin_on(sim)

    def _begin_on(self, sim: Simulator) -> None:
        """Prepare what the workers of a simulation share, in which nothing has happened yet."""
        self._sim = sim
        self._servers_running = len(self.servers)
        seconds = self._all_reduce_seconds
        self.all_reduces = AllReduces(sim, self.workers, seconds, self._all_reduced, self.elastic)

    def compute_times(
        self, worker: int, client: Participation | None = None
    ) -> Iterator[float] | None:
        """Return the compute times of a worker, or of a client that takes part there, without end.

        They are in proportion to the worker's batch. None when they are measured.
        """
        if self._compute is None:
            return None
        speed = self._cluster.node(self.workers[worker]).speed
        speed *= self.batch / self.batches[worker]
        if client is not None and self.clients is not None:
            speed *= self.clients.relative_speed(client.client)
            return self._compute.scaled(speed).draws(client.rng)
        stream = generator(self.seed, TrainingStream.COMPUTE, worker)
        return self._compute.scaled(speed).draws(stream)

    def update_sampler(self, server: int) -> Callable[[], float] | None:
        """Return the source of the server's update times; None when updates take no time."""
        if self._update_time == Constant(0.0):
            return None
        speed = self._cluster.node(self.servers[server]).speed
        stream = generator(self.seed, TrainingStream.SERVER, server)
        return self._update_time.scaled(speed).sampler(stream)

    def _all_reduced(self, part: int, combine: Combine, brought: Sequence[Contribution]) -> None:
        """End an all-reduce: what it comes to is the same everywhere, and computed once."""
        ranks = len(brought)
        if self.compression is None:
            self.bytes_sent += 2 * (ranks - 1) * self.numerics.sizes[part]
        else:
            self.bytes_sent += self.compression.all_reduce_bytes(part, ranks)
            self.compression.reduce([each.payload for each in brought])
        combine(brought)

    def sent(self, client: int, examples: int) -> None:
        """Take note of a compressed message of a gradient of so many examples."""

    def note(self, node: str, name: str, value: float) -> None:
        """Take note of something that happened now."""

    def server_finished(self) -> None:
        """End the run once every server has made its last update and its answers arrived."""
        self._servers_running -= 1
        if not self._servers_running:
            self.finish()

    def finish(self) -> None:
        """End the run."""
        self.is_over = True
        self._sim.stop()
