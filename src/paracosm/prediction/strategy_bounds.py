"""What an iteration with a strategy takes at least, and how much memory, before it is predicted.

From one rank's part of the model alone, with what tensor, context and expert ranks wait for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from paracosm.arrays import Floats
from paracosm.cluster import Cluster
from paracosm.cluster.collectives import collective_times
from paracosm.jobs.strategies.layers import PRODUCTS, Layers, is_numbered, layers_of, recomputed_of
from paracosm.jobs.strategies.plan import balanced, layer_times
from paracosm.jobs.strategies.strategy import SHARDINGS, Strategy
from paracosm.jobs.strategies.work import Replica, work_of
from paracosm.profiling.datasheets import COUNTED, class_of
from paracosm.simulation.replay import replay

RECOMPUTED: tuple[bool | str, ...] = (False, "selective", True)
"""What is computed again, from nothing on: each takes longer than the one before, and less room."""


@dataclass(frozen=True, eq=False)
class Network:
    """What data-parallel ranks of a cluster take for their gradients and parameters."""

    cluster: Cluster
    _ways: dict[tuple[int, int, str], list[Callable[[float], float]]] = field(default_factory=dict)

    def seconds(self, stride: int, ranks: int, collective: str, size: float) -> float:
        """Return those of a collective of every `stride`-th of the first workers."""
        key = stride, ranks, collective
        if key not in self._ways:
            group = np.arange(ranks) * stride
            self._ways[key] = list(collective_times(self.cluster, group, collective).values())
        return min(time_of(size) for time_of in self._ways[key])


@dataclass(frozen=True, eq=False)
class TimedSplit:
    """One rank's part of a model for a micro-batch, as tensor, context and expert ranks divide it.

    Without a pipeline, and without what replicas share. `within` gives the seconds of collectives
    between those ranks, by role, kind and bytes.
    """

    replica: Replica
    ways: Mapping[str, int]
    handed: int  # bytes of a micro-batch that a layer hands to the next one
    within: Callable[[str, str, int], float]

    @cached_property
    def _layers(self) -> Layers:
        return layers_of(self.replica.graph)

    @cached_property
    def _alone(self) -> Floats:
        """Seconds of each layer, both passes, without waiting."""
        return layer_times(work_of(self.replica), self._layers)

    @cached_property
    def _passes(self) -> tuple[Floats, Floats, float]:
        """Seconds of each layer forward and backward, and of the optimizer."""
        layers, duration = self._layers, np.array(self.replica.duration)
        for row, each in work_of(self.replica, self.ways).collective.items():
            duration[row] = self.within(each.role, each.collective, each.size)
        # The host is ahead in all micro-batches but the first.
        asynchronous = self.replica.asynchronous
        schedule = replay(self.replica.graph, duration, asynchronous=asynchronous)
        names = len(layers.names)
        ends = np.zeros((2, names))
        for done, rows in zip(ends, (layers.forward_rows, layers.backward_rows), strict=True):
            np.maximum.at(done, layers.layer[rows.start : rows.stop], schedule.end[list(rows)])
        reached = np.maximum.accumulate(np.concatenate((ends[0], ends[1][::-1])))
        spent = np.diff(reached, prepend=0.0)
        return spent[:names], spent[names:][::-1], float(schedule.makespan - reached[-1])

    @cached_property
    def memory_bound(self) -> float:
        """Share of the computing that is limited by the bandwidth of memory."""
        graph = self.replica.graph
        counted = [class_of(op.name) in COUNTED for op in graph.ops]
        time = np.bincount(graph.op, self.replica.duration, minlength=len(graph.ops))
        return float(time[~np.array(counted)].sum() / time.sum())

    @cached_property
    def _again(self) -> Mapping[bool | str, list[list[int]]]:
        """Rows of each layer whose results are not kept, for each of `RECOMPUTED`."""
        layers = self._layers
        of_recomputing: dict[bool | str, list[list[int]]] = {what: [] for what in RECOMPUTED}
        for number, name in enumerate(layers.names):
            rows = np.flatnonzero(layers.layer[: layers.backward] == number).tolist()
            inside = rows if is_numbered(name) else []
            for what, of_layer in of_recomputing.items():
                if isinstance(what, str):
                    of_layer.append(recomputed_of(self.replica.graph, what)(inside))
                else:
                    of_layer.append(inside if what else [])
        return of_recomputing

    @cached_property
    def _seconds_again(self) -> Mapping[bool | str, Floats]:
        """Seconds that recomputation adds to each layer at least: not those of its last product."""
        graph, duration = self.replica.graph, self.replica.duration
        product = np.array([set(PRODUCTS) & set(op.name.split(".")) for op in graph.ops], bool)
        is_product = product[graph.op]
        seconds = {}
        for what, of_layers in self._again.items():
            seconds[what] = np.zeros(len(of_layers))
            for number, (rows, whole) in enumerate(zip(of_layers, self._again[True], strict=True)):
                last = max((row for row in whole if is_product[row]), default=len(graph))
                seconds[what][number] = duration[[row for row in rows if row < last]].sum()
        return seconds

    @cached_property
    def _kept(self) -> Mapping[bool | str, Floats]:
        """Bytes that each layer keeps of a micro-batch until its backward pass."""
        layers, storages = self._layers, self.replica.graph.storages
        first = storages.first
        is_kept = (first >= 0) & (first < layers.backward)
        is_kept &= (layers.backward <= storages.last) & (storages.last < layers.optimizer)
        numbered = np.array([is_numbered(name) for name in layers.names])
        kept_bytes: dict[bool | str, Floats] = {}
        for what, of_layers in self._again.items():
            kept = is_kept & ~np.isin(first, [row for rows in of_layers for row in rows])
            weights = storages.size[kept].astype(np.float64)
            size = np.bincount(layers.layer[first[kept]], weights, len(layers.names))
            kept_bytes[what] = np.asarray(size + (numbered * self.handed if what else 0.0))
        return kept_bytes

    @cached_property
    def _share(self) -> Floats:
        """Share of each layer in the parameters."""
        layers, storages = self._layers, self.replica.graph.storages
        made = layers.gradient_bytes(storages.first, storages.last, storages.size)
        there = layers.layer >= 0
        size = np.bincount(layers.layer[there], made[there].astype(np.float64), len(layers.names))
        return np.asarray(size / size.sum())

    @cached_property
    def _gradients(self) -> int:
        """Bytes of the gradients."""
        storages = self.replica.graph.storages
        made = self._layers.gradient_bytes(storages.first, storages.last, storages.size)
        return int(made.sum())

    @cached_property
    def _begins(self) -> dict[int, list[int]]:
        return {}

    def _by_stage(self, count: int, of_layers: Floats) -> Floats:
        """Return the sums of stages, where the job is cut as the predictor cuts it."""
        if count not in self._begins:
            self._begins[count] = balanced(self._alone, count)
        return np.asarray(np.add.reduceat(of_layers, self._begins[count]))

    def bound(self, strategy: Strategy, network: Network, speed: float) -> float:
        """Return seconds that an iteration takes at least.

        The k-th stage has all micro-batches to do, after the forward passes of the stages before it
        and before their backward passes. Gradients of all but ZeRO 2 and 3 are reduced beside the
        last backward pass alone.
        """
        forward, backward, optimizer = self._passes
        sharers = strategy.sharing()[1] if strategy.sharding != "none" else 1
        update = optimizer / strategy.pipeline / sharers / speed
        bounds = list[float]()
        # What is computed again may fill the waits for other ranks: either counts, not both.
        for passes in (forward + backward, self._alone + self._seconds_again[strategy.recompute]):
            stages = self._by_stage(strategy.pipeline, passes) / speed
            before = np.concatenate(([0.0], np.cumsum(stages)[:-1]))
            path = float((strategy.microbatches * stages + before).max())
            bounds += [path + update, self._with_network(strategy, network, path, stages)]
        return max(bounds)

    def _with_network(
        self, strategy: Strategy, network: Network, path: float, stages: Floats
    ) -> float:
        ranks = strategy.sharing()[1]
        if strategy.replicas == 1 or strategy.shares_experts:
            return 0.0
        parameters = self.replica.graph.resident["parameters"] / strategy.pipeline
        gradients = 2 * parameters  # of 4 bytes, parameters of 2
        group = strategy.tensor, ranks
        if strategy.sharding == "none":
            return path - float(stages.max()) + network.seconds(*group, "all_reduce", gradients)
        scatter = network.seconds(*group, "reduce_scatter", gradients)
        gather = network.seconds(*group, "all_gather", parameters)
        if strategy.sharding == "optimizer":
            return path - float(stages.max()) + scatter
        gathers = 2 if strategy.sharding == "parameters" else 0
        return strategy.microbatches * (scatter + gathers * gather)

    def least_memory(self, strategy: Strategy) -> float:
        """Return bytes that some rank holds at least.

        Parameters, states and gradients of its stage, and what is kept for the backward passes of
        the micro-batches that are under way.
        """
        graph, pp = self.replica.graph, strategy.pipeline
        shared = strategy.sharing()[1]
        parameters, states = graph.resident["parameters"], graph.resident["optimizer"]
        master = graph.resident.get("master weights", 0)
        kind = graph.provenance.get("weights")
        zero = SHARDINGS.index(strategy.sharding)
        if zero == 3 and kind == "single":
            parameters -= master // 2  # whose shards are the master weights
        states += master
        if strategy.shares_experts:
            held = (parameters + states) / (strategy.replicas if zero == 3 else 1)
            held = held if zero in (0, 3) else parameters
        else:
            held = parameters / (shared if zero == 3 else 1) + states / (shared if zero else 1)
            if strategy.microbatches > 1 or kind == "buffers":
                held += self._gradients / (shared if zero > 1 else 1)
        under_way = np.minimum(strategy.microbatches, pp - np.arange(pp))
        kept = self._by_stage(pp, self._kept[strategy.recompute])
        return float((held * self._by_stage(pp, self._share) + under_way * kept).max())
