"""The work of one rank: lanes, durations and dependencies of a graph's nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.cluster.hardware import HostRates
from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES, Graph, Op, decode_arguments, host_nodes, waiting_nodes
from paracosm.units import real, whole

COMPUTE, HOST, MEMORY, TENSOR = "compute", "host", "memory", "tensor"
COMMUNICATION = "communication"
WITHIN = {TENSOR: "tp", "context": "cp", "expert": "ep", "expert_tensor": "etp"}
"""Roles, and lanes, of ranks that work on the same micro-batch: the keys of their numbers."""
OFFLOAD, RELOAD = "offload", "reload"
"""Lanes of copies to the host and back: a device does both at once."""
UPDATE = "update on the host"
"""The lane of the optimizer where the host runs it."""
DEVICE = (COMPUTE, MEMORY, *WITHIN)
"""Lanes of what a rank does on its own device, for its own replica."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A collective between ranks that work on the same micro-batch."""

    collective: str
    size: int  # bytes of the whole vector
    name: str
    role: str = TENSOR  # one of `WITHIN`


@dataclass(frozen=True)
class Interference:
    """The slowdown of computing by a concurrent collective between replicas.

    On a CPU without an idle core the rank's own core copies, sends and adds up: a task of its own
    for each collective. On a GPU communication kernels share multiprocessors and memory with those
    that compute: only what computes while a collective is under way takes longer.
    """

    per_byte: float = 0.0  # seconds of computing for each byte that is reduced or gathered
    slowdown: float = 1.0  # how much longer computing takes as long as a collective runs

    def __post_init__(self) -> None:
        if not (0 <= self.per_byte < np.inf and 1 <= self.slowdown < np.inf):
            raise InputError(
                f"interference: {self.per_byte} s for a byte and a slow-down of {self.slowdown}: "
                "they are 0 or more, and 1 or more"
            )


NO_INTERFERENCE = Interference()
OF_GPUS = Interference(slowdown=1.189)
"""The mean of A100, H100, MI210 and MI250 (Lee et al., "Characterizing Compute-Communication
Overlap in GPU-Accelerated Distributed Deep Learning", 2025, arXiv 2507.03114)."""


@dataclass(frozen=True, eq=False)
class Work:
    """The nodes of a graph as tasks of one rank."""

    graph: Graph
    duration: list[float]  # n seconds
    lane: list[str]
    on_host: list[bool]
    waits: list[bool]  # whether the host waits for what the node depends on
    host: str  # the lane of the host, which on a synchronous device is that of the device
    launch: float  # seconds of the host for each node that it only issues
    storage_size: Ints  # bytes of every storage of the graph
    # what a node of kind communication does; none of it where the strategy has one rank in its role
    collective: Mapping[int, Sum] = field(default_factory=lambda: MappingProxyType({}))
    # collectives after a node, which the next ones wait for
    sums: Mapping[int, tuple[Sum, ...]] = field(default_factory=lambda: MappingProxyType({}))
    interference: Interference = NO_INTERFERENCE
    host_rates: HostRates | None = None

    @property
    def host_takes_time(self) -> bool:
        """Whether the host's work keeps a device waiting."""
        return (
            self.host == COMPUTE
            or self.launch > 0
            or any(
                on_host and (waits or time > 0)
                for on_host, waits, time in zip(
                    self.on_host, self.waits, self.duration, strict=True
                )
            )
        )


def work_of(replica: Replica, ways: Mapping[str, int] = MappingProxyType({})) -> Work:
    """Return the work of one rank, of so many by role; the graph is that of one rank.

    Without `ways` nodes that communicate keep their durations.
    """
    graph = replica.graph
    host = HOST if replica.asynchronous else COMPUTE
    lane_of = {"compute": COMPUTE, "host": host, "memory": MEMORY, "communication": TENSOR}
    lanes = [lane_of[resource] for resource in RESOURCES]
    on_host = host_nodes(graph, replica.asynchronous).tolist()
    resource = graph.resource.tolist()
    collective = _collectives(graph, ways)
    lane = [host if own else lanes[code] for own, code in zip(on_host, resource, strict=True)]
    for row, each in collective.items():
        lane[row] = each.role
    return Work(
        graph=graph,
        duration=np.asarray(replica.duration, dtype=np.float64).tolist(),
        lane=lane,
        on_host=on_host,
        waits=waiting_nodes(graph, replica.asynchronous).tolist(),
        host=host,
        launch=replica.launch,
        storage_size=graph.storages.size,
        collective=collective,
        interference=replica.interference,
        host_rates=replica.host_rates,
    )


def _collectives(graph: Graph, ways: Mapping[str, int]) -> dict[int, Sum]:
    sums: dict[int, Sum] = {}
    if not ways:
        return sums
    for row in np.flatnonzero(graph.resource == RESOURCES.index("communication")).tolist():
        op = graph.ops[graph.op[row]]
        group = graph.groups[graph.group[row]] if graph.group[row] >= 0 else ()
        role = _role_of(op)
        if group and len(group) != ways[role]:
            key = WITHIN[role]
            raise InputError(
                f"strategy: {key}={ways[role]}, but {op.name} of node {int(graph.id[row])} is "
                f"between {len(group)} ranks: {key}={len(group)} fits, or a graph of one rank"
            )
        if ways[role] == 1:
            continue  # between an unknown number of ranks: it keeps its time
        size = max(op.bytes_read, op.bytes_written)
        sums[row] = Sum(_collective_of(op.name), size, op.name, role)
    return sums


def _role_of(op: Op) -> str:
    """Return the role in which an op communicates: the one that its arguments name as its group."""
    named = decode_arguments(op.arguments)[1].get("group", TENSOR) if op.arguments else TENSOR
    return named if named in WITHIN else TENSOR


def _collective_of(name: str) -> str:
    plain = name.lower().replace("_", "")
    kinds = ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "permute")
    return next((kind for kind in kinds if kind.replace("_", "") in plain), "all_reduce")


@dataclass(frozen=True, eq=False)
class Replica:
    """A training step of one replica, on a worker of speed 1.

    Raises:
        InputError: a duration or the launch time is missing (NaN), negative or infinite; no rank.
    """

    graph: Graph  # forward, backward and optimizer, of one micro-batch
    duration: Floats  # n seconds on the node's own lane
    asynchronous: bool = False  # whether the host runs ahead of the device, as with a GPU
    # seconds that the host spends on issuing a node that it does not carry out itself
    launch: float = 0.0
    # tensor-parallel ranks that the graph is one of. Where it has no nodes that communicate,
    # durations are taken to include that.
    tensor: int = 1
    interference: Interference = NO_INTERFERENCE
    # the same durations on other devices, by the names that nodes of a cluster have for them
    durations_by_device: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    host_rates: HostRates | None = None  # where the host may update

    def on(self, device: str) -> Replica:
        """Return the replica on another device, or unchanged if nothing is known of that."""
        if device not in self.durations_by_device:
            return self
        return replace(
            self,
            duration=self.durations_by_device[device],
            durations_by_device=MappingProxyType({}),
        )

    def times(self, factor: float) -> Replica:
        """Return the replica with durations so many times as long."""
        others = {device: times * factor for device, times in self.durations_by_device.items()}
        rates = self.host_rates
        if rates is not None:
            rates = replace(rates, update=rates.update / factor)
        duration = self.duration * factor
        return replace(self, duration=duration, durations_by_device=others, host_rates=rates)

    @property
    def examples(self) -> int | None:
        """The size of the graph's batch; None if its provenance lacks it."""
        return self.graph.examples

    def __post_init__(self) -> None:
        every = {"": self.duration, **self.durations_by_device}
        for device, durations in every.items():
            try:
                times = np.array(durations, dtype=np.float64)
            except (TypeError, ValueError):
                raise InputError("replica: durations are numbers of seconds") from None
            if times.shape != (len(self.graph),):
                raise InputError(f"replica: {times.size} durations for {len(self.graph)} nodes")
            for row in np.flatnonzero(~(np.isfinite(times) & (times >= 0)))[:1]:
                op, node = self.graph.ops[self.graph.op[row]].name, int(self.graph.id[row])
                raise InputError(f"replica: the duration of node {node} ({op}) is {times[row]} s")
            every[device] = times
        tensor, launch = whole(self.tensor), real(self.launch)
        if tensor is None or tensor < 1:
            raise InputError(f"replica: tensor must be 1 or more, not {self.tensor}")
        if not 0 <= launch < np.inf:
            raise InputError(f"replica: the launch time is {self.launch} s")
        object.__setattr__(self, "duration", every.pop(""))
        object.__setattr__(self, "durations_by_device", every)
        object.__setattr__(self, "tensor", tensor)
        object.__setattr__(self, "launch", launch)
