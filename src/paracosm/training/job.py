"""One run on the engine: its state, its stores, and what counts as an update."""

from collections.abc import Callable, Sequence
from typing import Any

from paracosm.cluster import Cluster
from paracosm.engine import Simulator
from paracosm.results.metrics import MetricSink
from paracosm.results.summaries import CompressionSummary
from paracosm.simulation.schedule import BusyTimes
from paracosm.training.clients import Clients
from paracosm.training.compression.messages import Compression
from paracosm.training.config import TrainConfig
from paracosm.training.failures.conditions import Conditions
from paracosm.training.failures.failing_nodes import FailingServer, FailingWorker
from paracosm.training.numerics.store import Contribution, Numerics, Store
from paracosm.training.record import Progress, RunRecord
from paracosm.training.run_state import RunState
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


class Job:
    """A run: the state of its simulation, its stores, and what was recorded of it.

    Where nodes fail, `failures.failing_job` plays it.

    Attributes:
        after_update: called after every update of a store.
    """

    def __init__(
        self,
        config: TrainConfig,
        seed: int,
        cluster: Cluster,
        numerics: Numerics,
        sim: Simulator,
        sink: MetricSink,
        progress: Progress | None,
        conditions: Conditions | None = None,  # under which its nodes fail
    ) -> None:
        codec, topology = config.compress, config.resolve_topology()
        is_shared = topology == "all-reduce"
        compression = None if codec is None else Compression(codec, numerics, seed, is_shared)
        self.config = config
        self.conditions = conditions
        self.after_update: Callable[[], None] = lambda: None
        self.record = RunRecord(
            config,
            numerics,
            sink,
            progress,
            lambda: self.now,
            lambda: self.parameters(),
            bytes_sent=None if codec is None else lambda: self.state.bytes_sent,
            counts_sent=codec is not None and codec.depends_on_before,
        )
        self.state = RunState(
            sim,
            cluster,
            topology,
            numerics,
            seed,
            config.compute_distribution(),
            config.update_time,
            config.most_updates,
            self._clients_of(config, seed, numerics),
            compression,
            self.record.sent,
            self.record.note,
            conditions,
        )
        self.stores: list[Store] = []
        for _ in cluster.workers if topology == "peers" else cluster.workers[:1]:
            self._add_stores()

    @property
    def now(self) -> float:
        """The virtual time."""
        now = self.state.sim.now
        return now if self.conditions is None else self.conditions.virtual(now)

    def play(self) -> None:
        """Run to the end, or until `stop`."""
        self.add_nodes(self.state.sim)
        self.state.sim.run(until=self.config.until_time)

    def stop(self) -> None:
        """End the run where it is safe."""
        self.state.sim.stop()

    def busy_times(self) -> BusyTimes:
        """Return for how long each node computed, sent and received."""
        held = self.state.all_reduces.busy
        return {
            name: {
                "compute": node.compute_time,
                "send": node.ports.busy_time("send") + held,
                "receive": node.ports.busy_time("receive") + held,
            }
            for name, node in self.state.sim.workers.items()
        }

    def add_nodes(self, sim: Simulator) -> None:
        """Add servers and workers to a simulation."""
        state, stores, algorithm = self.state, self.stores, self.config.algorithm
        peers = state.topology == "peers"
        worker_kind, server_kind = TrainingWorker, ParameterServer
        if self.conditions is not None:
            worker_kind, server_kind = FailingWorker, FailingServer
        if state.topology == "server":
            for index, name in enumerate(state.servers):
                sim.add_worker(name, server_kind, state, index, algorithm.serve, stores[index])
            stores = []
        for index, name in enumerate(state.workers):
            read = [stores[index]] if peers else stores
            worker = sim.add_worker(name, worker_kind, state, index, algorithm.work, read)
            if peers:
                sim.spawn(algorithm.listen(worker), name=f"{name}.listen")

    @staticmethod
    def _clients_of(config: TrainConfig, seed: int, numerics: Numerics) -> Clients | None:
        if config.clients is None:
            return None
        by_size = config.sampling == "by-size"
        clients = range(config.clients)
        sizes = [numerics.examples_of(client) for client in clients] if by_size else None
        return Clients(config, seed, sizes, config.until_time)

    def _add_stores(self) -> None:
        algorithm, codec = self.config.algorithm, self.config.compress
        for index, part in enumerate(self.state.numerics.parts):
            rule, recipe = algorithm.outer(), self.state.numerics.outer_recipe(index)
            if rule is None:
                rule, recipe = self.state.numerics.rule(), self.state.numerics.recipe
            store = Store(
                self.state.initial[part],
                rule,
                self.updated,
                self.state.numerics.real,
                algorithm,
                len(self.state.workers),
                recipe,
                # Each peer makes some of the run's updates on a store of its own.
                updates=(lambda: self.record.updates) if self.state.topology == "peers" else None,
                aggregate=None if codec is None else lambda m, u: codec.at(u).aggregate(m),
            )
            self.stores.append(store)

    def compression_summary(self) -> CompressionSummary | None:
        """Return by how much messages are smaller; None where they are sent as they are."""
        if self.state.compression is None:
            return None
        sent, whole = sum(self.state.push_sizes), sum(self.state.numerics.sizes)
        ratio = whole / sent
        return CompressionSummary(
            codec=str(self.state.compression.codec), message=sent, uncompressed=whole, ratio=ratio
        )

    def parameters(self) -> Any:
        """Return the flat vector that the run has reached: of the servers, or the peers' mean."""
        if self.state.topology == "peers":
            return sum(store.weighted for store in self.stores) / len(self.stores)
        return self.state.numerics.join([store.parameters for store in self.stores])

    def updated(
        self, store: Store, contributions: Sequence[Contribution], staleness: Sequence[int]
    ) -> None:
        """Record an update of one store."""
        self._record_update(store, contributions, staleness)
        self.after_update()

    def _record_update(
        self, store: Store, contributions: Sequence[Contribution], staleness: Sequence[int]
    ) -> None:
        """Record an update of one store.

        Where each has a part of the parameters, contributions are recorded at the first one, each
        once; the last one makes the update.
        """
        record, has_parts = self.record, self.state.topology != "peers"
        record.released(contributions)
        if store is self.stores[0] or not has_parts:
            step = store.version if has_parts else record.updates + 1
            record.gradients(step, contributions, staleness)
        # The last one is the last to get there, as a rule.
        if has_parts and any(s.version == record.updates for s in reversed(self.stores)):
            return
        record.updated()
        if record.updates >= self.state.last_update and self.state.topology != "server":
            self.state.finish()
