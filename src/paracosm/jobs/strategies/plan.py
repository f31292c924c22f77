"""A replica cut into stages: what all ranks of a job have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.cluster.cluster import Cluster
from paracosm.errors import InputError, unknown
from paracosm.graphs.graph import PHASES, Graph
from paracosm.jobs.strategies.layers import (
    Layers,
    is_numbered,
    kept_gradients,
    layers_of,
    split,
    weight_rows,
)
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import TENSOR, WITHIN, Replica, Work, work_of
from paracosm.jobs.writer import Use

DIVIDED = ("parameters", "gradients", "optimizer", "master weights")
"""What tensor-parallel ranks hold their parts of."""

LOGITS = ("head", "loss", "lm_head", "output")
"""Places that make logits, and what a loss makes of them."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A replica's work, and its distribution.

    Chunk c of rank p of a pipeline is `parts[c * pipeline + p]`. `gradients` are the bytes that
    each node makes, `resident` those that a replica holds throughout, by kind.
    """

    strategy: Strategy
    work: Work
    layers: Layers
    parts: "tuple[Part, ...]"
    gradients: Ints
    resident: dict[str, float]

    @property
    def parameters(self) -> float:
        """Bytes of a replica's parameters; by default, those of its gradients."""
        return self.resident.get("parameters") or float(self.gradients.sum())

    @property
    def weights(self) -> str:
        """What is held of parameters; see `paracosm.graphs.transformer.Transformer`."""
        return str(self.work.graph.provenance.get("weights", "copies"))

    @property
    def adds_up(self) -> bool:
        """Whether gradients are added to some that are there from the beginning on."""
        return self.strategy.microbatches > 1 or self.weights == "buffers"

    @cached_property
    def of_experts(self) -> Bools:
        """Whether each node is of experts that ranks share: at a place such as "h.0.experts.up"."""
        held = [
            self.strategy.shares_experts and "experts" in n.split(".")
            for n in self.work.graph.names
        ]
        return np.array(held, dtype=np.bool_)[self.work.graph.name]

    @cached_property
    def gathered(self) -> dict[str, Floats]:
        """Bytes of the parameters of every layer that ranks gather, by their role.

        They are in proportion to those of their gradients; with float8 that is scaled by the
        tensor, layers with a number are gathered as numbers of one byte, not two.
        """
        layer, names = self.layers.layer, self.layers.names
        if self.strategy.sharding != "parameters":
            return {}
        there = layer >= 0
        scale = self.parameters / max(float(self.gradients[there].sum()), 1.0)
        one_byte = [self.strategy.scaling == "tensorwise" and is_numbered(n) for n in names]
        sizes = {}
        for experts in (False, True):
            role, ranks = self.strategy.sharing(experts)
            chosen = there & (self.of_experts == experts)
            size = np.bincount(layer[chosen], weights=self.gradients[chosen], minlength=len(names))
            if ranks > 1:
                sizes[role] = np.where(one_byte, size / 2, size) * scale
        return sizes

    @cached_property
    def deferred(self) -> frozenset[int]:
        """Rows of the backward pass that a zero-bubble pipeline defers: gradients of weights."""
        if self.strategy.schedule != "zero-bubble":
            return frozenset()
        return weight_rows(self.work.graph, self.layers)

    @cached_property
    def halved(self) -> frozenset[int]:
        """Rows that make gradients of weights and others, in layers with none for weights alone.

        Half of their time is deferred: Qi et al. find both halves about equal (2023, section 2.1).
        """
        if self.strategy.schedule != "zero-bubble":
            return frozenset()
        layer = self.layers.layer
        apart = {int(layer[row]) for row in self.deferred}
        rows = np.flatnonzero(self.gradients).tolist()
        return frozenset(row for row in rows if int(layer[row]) not in apart)

    @property
    def put_off(self) -> frozenset[int]:
        """Rows of which anything is deferred until after the backward pass."""
        return self.deferred | self.halved

    @cached_property
    def until(self) -> Ints:
        """The last layer whose forward pass uses what each node makes; -1 for none."""
        return _last_readers(self.work.graph, self.layers, self.layers.layer)

    @cached_property
    def use(self) -> Callable[[int, int], Use]:
        """Says what a storage is for, by the first and the last node that use it."""
        return uses_of(self.work.graph)

    def sections(self, rows: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return these rows as runs of rows of one layer, each with the number of the layer."""
        layer = self.layers.layer
        return [
            (int(number), list(run)) for number, run in groupby(rows, key=lambda row: layer[row])
        ]

    def backward_rows(self, part: "Part") -> list[int]:
        """Return the rows of a stage's backward pass in the order in which they run.

        If something is done before every layer, the order is layer by layer, the last one first; it
        is valid, since no row waits for a layer before it.
        """
        strategy = self.strategy
        layered = strategy.sharding == "parameters" or strategy.offload
        if not (layered or strategy.recompute):
            return list(part.backward)
        return sorted(part.backward, key=lambda row: -self.layers.layer[row])


def uses_of(graph: Graph) -> Callable[[int, int], Use]:
    """Return what says what a storage is for, by the rows of the first and last node that use it.

    Places are those without the layer: "mlp.up" of "h.0.mlp.up".
    """
    places = [_within_layer(name) for name in graph.names]
    backward, optimizer = PHASES.index("backward"), PHASES.index("optimizer")

    def use(first: int, last: int) -> Use:
        if first < 0:
            return "inputs", ""
        name, phase = places[graph.name[first]], graph.phase[first]
        if phase == optimizer:
            return "optimizer", name
        if phase == backward and last == len(graph):
            return "gradients", name
        if name in LOGITS:
            return "logits", name
        return ("temporary" if phase == backward else "activations"), name

    return use


def _within_layer(place: str) -> str:
    parts = place.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[numbers[0] + 1 :]) if numbers else place


def plan_of(replica: Replica, strategy: Strategy) -> Plan:
    graph, layers = replica.graph, layers_of(replica.graph)
    _check_written(graph, strategy)
    work = work_of(replica, {role: getattr(strategy, role) for role in WITHIN})
    summed = any(summed_over.role == TENSOR for summed_over in work.collective.values())
    said = "yes" if strategy.sequence else "no"
    if summed and said != (made := graph.provenance.get("sp", "no")):
        raise InputError(f"strategy: sp={said}, but the graph has the collectives of sp={made}")
    parts = 1
    if strategy.tensor != replica.tensor and not summed:
        if replica.tensor > 1:
            raise InputError(
                f"strategy: tp={strategy.tensor}, but the replica is one of {replica.tensor} "
                f"tensor-parallel ranks: tp={replica.tensor} fits"
            )
        work = split(work, layers, strategy.tensor, along_sequence=strategy.sequence)
        parts = strategy.tensor if strategy.sequence else 1
    time = layer_times(work, layers)
    count, equal = strategy.pipeline * strategy.chunks, graph.provenance.get("stages") == "equal"
    stage = stages_of(layers, time, count, strategy.cut, equal=equal)
    storages = graph.storages
    gradients = layers.gradient_bytes(storages.first, storages.last, work.storage_size)
    kept = kept_gradients(work, work.storage_size, layers)
    return Plan(
        strategy=strategy,
        work=work,
        layers=layers,
        parts=tuple(parts_of(graph, layers, stage, gradients, parts)),
        gradients=gradients,
        resident={
            what: size * (kept if what in DIVIDED else 1.0) for what, size in graph.resident.items()
        },
    )


def layer_times(work: Work, layers: Layers) -> Floats:
    """Return the seconds of every layer, forward and backward."""
    passes = np.arange(layers.optimizer)
    return np.bincount(
        layers.layer[passes], weights=np.array(work.duration)[passes], minlength=len(layers.names)
    ).astype(np.float64)


def _check_written(graph: Graph, strategy: Strategy) -> None:
    """Check that the graph is divided as the strategy requires, where only its writer can."""
    known, is_half = graph.provenance, strategy.states != Strategy.states
    for key, wanted in (
        ("cp", strategy.context),
        *([] if strategy.context_form == "auto" else [("cp_form", strategy.context_form)]),
        ("ep", strategy.expert),
        ("etp", str(strategy.expert_tensor or "no")),
        ("float8", strategy.scaling or "no"),
        *([("states", strategy.states)] if "states" in known or is_half else []),
        ("async_tp", "yes" if strategy.async_tp else "no"),
    ):
        made = known.get(key, 1 if isinstance(wanted, int) else "no")
        if wanted != made:
            raise InputError(
                f"strategy: {key}={wanted}, but the graph is made for {key}={made}: a transformer "
                'by its name ("llama-8b") is written down for any'
            )


@dataclass(frozen=True, eq=False)
class Part:
    """The work of one stage: rows, those of the optimizer with the share of it.

    Activations of `received` bytes come from the stage before, `sent` bytes go to the next one, and
    gradients of the same sizes back. `share` is that of the parameters, by the bytes of gradients.
    """

    number: int
    stages: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    optimizer: tuple[tuple[int, float], ...]
    received: int
    sent: int
    share: float


def parts_of(
    graph: Graph, layers: Layers, stage_of_layer: list[int], gradients: np.ndarray, ranks: int = 1
) -> list[Part]:
    """Return the stages; `ranks` have a part each of what crosses from one to the next."""
    stages = max(stage_of_layer) + 1
    stage = np.where(layers.layer >= 0, np.array(stage_of_layer)[layers.layer], -1)
    crossed = [-(-size // ranks) for size in crossing_bytes(graph, layers, stage, stages)]
    crossing = [0, *crossed, 0]
    held = np.bincount(stage[stage >= 0], weights=gradients[stage >= 0], minlength=stages)
    share = held / held.sum() if held.sum() else np.full(stages, 1 / stages)
    if stages > 1:  # the last one has a copy of the embedding's weights, where the head has none
        share[-1] += graph.provenance.get("tied", 0.0)
    rows = [
        [[row for row in part if stage[row] == number] for number in range(stages)]
        for part in (layers.forward_rows, layers.backward_rows)
    ]
    return [
        Part(
            number=number,
            stages=stages,
            forward=tuple(rows[0][number]),
            backward=tuple(rows[1][number]),
            optimizer=tuple(
                (row, 1.0 if stage[row] >= 0 else float(share[number]))
                for row in layers.optimizer_rows
                if stage[row] in (-1, number)
            ),
            received=crossing[number],
            sent=crossing[number + 1],
            share=float(share[number]),
        )
        for number in range(stages)
    ]


def stages_of(
    layers: Layers, time: Floats, count: int, cut: Sequence[str], *, equal: bool = False
) -> list[int]:
    """Return the stage of every layer, from their seconds or from `cut`.

    Without a cut stages have `equal` numbers of layers, if they can; else the longest stage is as
    short as possible, and then each one, from the last on, has as few layers as possible.
    """
    if count > len(layers.names):
        raise InputError(
            f"strategy: {count} stages of {len(layers.names)} layers: pp x chunks may be "
            f"{len(layers.names)} at most"
        )
    begins = [0, *(_begin(layers, name) for name in cut)] if cut else []
    begins = begins or (equal and _equal_begins(layers, count)) or balanced(time, count)
    if any(later <= earlier for earlier, later in pairwise(begins)):
        raise InputError(f"strategy: cut={'+'.join(cut)}: layers must be in the model's order")
    numbers = np.arange(len(layers.names))
    return [int(stage) for stage in np.searchsorted(begins, numbers, side="right") - 1]


def _equal_begins(layers: Layers, count: int) -> list[int]:
    """Return where stages begin as Megatron-Core cuts a model: with as many numbered layers each,
    or, where these and the embedding and the head divide, with one layer less in the first and the
    last stage (`account_for_embedding_in_pipeline_split`, `account_for_loss_in_pipeline_split`, as
    NeMo has Llama 3.1 405B); nothing where neither is possible."""
    numbered = [number for number, name in enumerate(layers.names) if is_numbered(name)]
    more = 0 if len(numbered) % count == 0 else 1
    layers_a_stage, left = divmod(len(numbered) + 2 * more, count)
    if count == 1 or left or layers_a_stage <= more:
        return []
    return [0, *(numbered[stage * layers_a_stage - more] for stage in range(1, count))]


def crossing_bytes(graph: Graph, layers: Layers, stage: Ints, count: int) -> list[int]:
    """Return the bytes that pass from each of `count` stages to the next, for one micro-batch.

    They are what the forward pass of later stages uses: what the nodes write that it waits for, or
    their largest storage if that is less (an op may write more than is used, a layer as one node
    keeps more than it passes on). If nothing later waits for the stage or those before, it is what
    the last node of the stage writes.
    """
    sizes = np.zeros(len(graph), dtype=np.int64)
    there = graph.storages.first >= 0
    np.maximum.at(sizes, graph.storages.first[there], graph.storages.size[there])
    written = graph.bytes_written
    until = _last_readers(graph, layers, stage)
    rows = np.arange(layers.backward)
    crossing = []
    for number in range(count - 1):
        own_rows = rows[stage[: layers.backward] <= number]
        handed = own_rows[until[own_rows] > number]
        least = np.minimum(sizes[handed], written[handed])
        size = int(np.where(least > 0, least, sizes[handed] + written[handed]).sum())
        if not size:
            made = own_rows[written[own_rows] > 0]
            size = int(written[made[-1]]) if len(made) else 0
        crossing.append(size)
    return crossing


def _last_readers(graph: Graph, layers: Layers, number: Ints) -> Ints:
    """Return the largest number of the forward nodes that use each node; -1 for none."""
    until = np.full(len(graph), -1, dtype=np.int64)
    for row in layers.forward_rows:
        np.maximum.at(until, graph.predecessors(row), number[row])
    return until


def _begin(layers: Layers, name: str) -> int:
    if name not in layers.names:
        raise InputError(f"strategy: cut: {unknown('layer', name, layers.names)}")
    return layers.names.index(name)


def balanced(time: Floats, count: int) -> list[int]:
    """Return where each of `count` stages begins, so that the longest takes the least time.

    Best[k][i] = min over j of max(best[k - 1][j], time of layers j to i): the linear partition.
    `time` is of every layer, or has a row of these for each stage.
    """
    n = time.shape[-1]
    if count == 1:
        return [0]
    every = np.broadcast_to(np.cumsum(time, axis=-1), (count, n))
    totals = np.concatenate((np.zeros((count, 1)), every), axis=1)
    best = np.full(n + 1, np.inf)
    where = np.zeros((count + 1, n + 1), dtype=np.int64)
    best[0] = 0.0
    empty = np.tri(n + 1, dtype=np.bool_).T  # stages, by their end and begin, without any layer
    for stage, total in enumerate(totals, start=1):
        longest = np.maximum(best, total[:, np.newaxis] - total)
        longest[empty] = np.inf
        where[stage] = n - np.argmin(longest[:, ::-1], axis=1)  # of equal ones the last
        best = longest.min(axis=1)
    begins_at, end = [], n
    for stage in range(count, 0, -1):
        end = int(where[stage, end])
        begins_at.append(end)
    return begins_at[::-1]


def plans_of(
    replica: Replica, cluster: Cluster, strategy: Strategy, stage: Ints
) -> tuple[list[Plan], Ints]:
    """Return the plan of each kind of device, and the index of each worker's plan.

    Unless the cut of a pipeline is given, the longest stage is as short as possible, each timed on
    the slowest of its devices. `stage` is that of each worker.
    """
    devices = [node.device or "" for node in cluster.nodes[: len(stage)]]
    known = [device if device in replica.durations_by_device else "" for device in devices]
    kinds = list(dict.fromkeys(known))
    which = np.array([kinds.index(kind) for kind in known], dtype=np.int64)
    replicas = [replica.on(kind) for kind in kinds]
    plans = [plan_of(replica, strategy) for replica in replicas]
    if len(plans) > 1 and strategy.pipeline > 1 and not strategy.cut:
        cut = _cut(plans, which, strategy, stage)
        plans = [plan_of(replica, replace(strategy, cut=cut)) for replica in replicas]
    return plans, which


def _cut(plans: list[Plan], which: Ints, strategy: Strategy, stage: Ints) -> tuple[str, ...]:
    layers = plans[0].layers
    times = np.array([layer_times(plan.work, layers) for plan in plans])
    slowest = [times[np.unique(which[stage == n])].max(axis=0) for n in range(strategy.pipeline)]
    begins = balanced(np.tile(slowest, (strategy.chunks, 1)), len(slowest) * strategy.chunks)
    return tuple(layers.names[begin] for begin in begins[1:])
