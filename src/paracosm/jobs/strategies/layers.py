"""Layers of the model, and how tensor-parallel ranks split them.

A place with a number in it names a layer: "h.0.attention.qkv" belongs to "h.0". Consecutive places
without one ("wte", "wpe"; "ln_f", "lm_head") form a layer of their own; in a model without any
number, every module at the top is a layer. Nodes without a place belong to the layer before them.

Tensor parallelism: ranks split the matrices of every layer (Megatron-LM, Shoeybi et al. 2019).

    compute  | norm | attention / t |        | norm | perceptron / t |
    tensor                          | sum    |                       | sum

A graph that is captured with tensor parallelism has its collectives; a graph of one rank is split
by estimate. In the longest list of layers ("h.0", "h.1", ...) everything takes 1/t of the time, of
the gradients and of the activations, except what every rank does in full: norms (a place whose last
name has "norm" in it, or is "ln", "ln_1") and the sums at the place of the layer itself ("h.0").
After every run of split ops the ranks sum up its output, and in the backward pass the gradient of
its input, which is as large: in a transformer two all-reduces per layer and direction. A layer of
one op in each pass, as in a per-layer profile, is split as a whole and followed by two of them.
Outside those layers (embedding, head, loss) every rank does everything. Nothing overlaps with the
sums.

Heads of an attention stay whole. If t does not divide them, everything at the place of the
attention takes the time of the ranks with most of them: 2/12, of 12 heads on 8 ranks.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

import numpy as np

from paracosm.arrays import Bools, Ints
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, TensorArgument, decode_arguments
from paracosm.jobs.strategies.work import Sum, Work

FORWARD, BACKWARD, OPTIMIZER = (PHASES.index(p) for p in ("forward", "backward", "optimizer"))


@dataclass(frozen=True, eq=False)
class Layers:
    """Layers in the order of the forward pass, and the parts of the step."""

    names: tuple[str, ...]  # of the layers
    # of each of n nodes, an index into `names`; -1 for a node of the optimizer that works on the
    # parameters of all layers
    layer: Ints
    backward: int  # backward, optimizer: the first row of either; n where there is none
    optimizer: int

    @property
    def forward_rows(self) -> range:
        return range(self.backward)

    @property
    def backward_rows(self) -> range:
        return range(self.backward, self.optimizer)

    @property
    def optimizer_rows(self) -> range:
        return range(self.optimizer, len(self.layer))

    def gradient_bytes(self, first: Ints, last: Ints, size: Ints) -> Ints:
        """Return the bytes of gradients that each node makes, from the storages of the graph."""
        count = len(self.layer)
        sizes = np.zeros(count, dtype=np.int64)
        lasting = (first >= self.backward) & (first < self.optimizer) & (last == count)
        np.add.at(sizes, first[lasting], size[lasting])
        return sizes


def layers_of(graph: Graph) -> Layers:
    backward, optimizer = _parts(graph)
    places = [graph.names[code] for code in graph.name.tolist()]
    label = _labels(places[:backward])
    names: list[str] = []
    number: dict[str, int] = {}
    layer = np.full(len(graph), -1, dtype=np.int64)
    current = 0
    for row in range(backward):
        if (found := label.get(places[row])) is not None:
            if found not in number:
                number[found] = len(names)
                names.append(found)
            current = max(current, number[found])
        layer[row] = current
    names = names or [""]
    of_place = {place: number[found] for place, found in label.items() if found in number}
    _backward_layers(graph, range(backward, optimizer), places, of_place, layer, len(names) - 1)
    for row in range(optimizer, len(graph)):
        op = graph.ops[graph.op[row]].name
        if "_foreach" not in op and "_fused" not in op:
            layer[row] = of_place.get(places[row], -1)
    return Layers(tuple(names), layer, backward, optimizer)


@lru_cache(maxsize=1 << 14)
def is_numbered(place: str) -> bool:
    return any(part.isdigit() for part in place.split("."))


def _numbered(place: str) -> str:
    """Return "h.0" of "h.0.attention.qkv"."""
    parts = place.split(".")
    last = next(index for index, part in enumerate(parts) if part.isdigit())
    return ".".join(parts[: last + 1])


def _labels(places: list[str]) -> dict[str, str]:
    """Return the layer of every place; those without a number are named by the first of a run."""
    any_numbered = any(is_numbered(place) for place in places)
    labels: dict[str, str] = {}
    run = ""
    for place in places:
        if not place:
            continue
        if is_numbered(place):
            run = ""
            labels.setdefault(place, _numbered(place))
        elif place not in labels:
            if not any_numbered:
                labels[place] = place.split(".")[0]
            else:
                run = run or place
                labels[place] = run
    return labels


def _backward_layers(
    graph: Graph, rows: range, places: list[str], of_place: dict[str, int], layer: Ints, last: int
) -> None:
    """Fill in the layers of the backward pass: none later than one whose gradient a node needs."""
    current, offsets, dependencies = last, graph.offsets.tolist(), graph.dependencies.tolist()
    layers = layer.tolist()
    for row in rows:
        current = of_place.get(places[row], current)
        before = dependencies[offsets[row] : offsets[row + 1]]
        layers[row] = min(
            [current, *[layers[row_before] for row_before in before if row_before >= rows.start]]
        )
    layer[:] = layers


def _parts(graph: Graph) -> tuple[int, int]:
    n = len(graph)
    order = np.where(graph.phase == PHASES.index("other"), -1, graph.phase)
    latest = np.maximum.accumulate(order) if n else order
    for row in np.flatnonzero((order >= 0) & (order < latest))[:1].tolist():
        raise InputError(
            f"graph: node {int(graph.id[row])} ({graph.ops[graph.op[row]].name}) is of the "
            f"{PHASES[order[row]]} pass, but follows the {PHASES[latest[row]]} pass: only "
            "strategy single supports a step with mixed passes"
        )
    return int(np.searchsorted(latest, BACKWARD)), int(np.searchsorted(latest, OPTIMIZER))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together: rows of the nodes that make them, in order; bytes."""

    rows: tuple[int, ...]
    size: int
    role: str  # in which ranks reduce them


def buckets_of(
    rows: Sequence[int], sizes: Ints, first: float, usual: float, role: str
) -> list[Bucket]:
    """Return the buckets of these backward rows, as PyTorch's DDP fills them after one iteration.

    Gradients fill a bucket in order of appearance; the one that fills it up closes it (Li et al.,
    "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, sections
    3.2 and 4.2). `first` and `usual` bytes close the first one and the others.
    """
    buckets: list[Bucket] = []
    filled: list[int] = []
    size = 0
    for row in rows:
        if not sizes[row]:
            continue
        filled.append(row)
        size += int(sizes[row])
        if size >= (usual if buckets else first):
            buckets.append(Bucket(tuple(filled), size, role))
            filled, size = [], 0
    return [*buckets, Bucket(tuple(filled), size, role)] if filled else buckets


NORM = re.compile(r"norm|^ln(_?\d+)?$")
PRODUCT = re.compile(r"mm|matmul|linear|attention|conv|einsum|gemm")
SUMS_OF_A_LAYER = 2
HOST = RESOURCES.index("host")


def split(work: Work, layers: Layers, tensor: int, *, along_sequence: bool = False) -> Work:
    """Return the work of one of `tensor` ranks, estimated from that of a single rank.

    Along the sequence ranks divide norms and sums as well; each sum is a reduce-scatter, and a
    gather before the next split op.
    """
    split_rows = _split_rows(work, layers)
    if not split_rows.any():
        raise InputError(
            f"strategy: tp={tensor}: nothing to split: no list of layers with matrix products, at "
            'places such as "h.0.mlp"; capture the graph with --parallel tensor'
        )
    forward = np.flatnonzero(split_rows[: layers.backward]).tolist()
    check_divides(work.graph, forward, tensor)
    divided = split_rows
    if along_sequence:
        divided = _numbered_most(layers) & (work.graph.resource != HOST)
        divided[layers.optimizer :] = split_rows[layers.optimizer :]
    share = np.where(divided, 1 / tensor, 1.0)
    for place, most in shares_of_heads(work.graph, forward, tensor).items():
        share[split_rows & _inside(work, place)] = most
    duration = np.array(work.duration) * share
    first = work.graph.storages.first
    size = work.storage_size.copy()
    of_split = (first >= 0) & divided[first]
    # Norms are divided, and their gradients are not.
    of_split &= split_rows[first] | (work.graph.storages.last < len(work.graph))
    sums = _sums(work, layers, split_rows)
    whole = np.isin(first, list(sums)) & (first < layers.backward) & (not along_sequence)
    whole &= work.graph.bytes_written[first] >= size  # its output, not what it keeps besides
    shared = of_split & ~whole
    if along_sequence:
        sums = {row: _along_sequence(layer_sums) for row, layer_sums in sums.items()}
    parts = np.round(size[shared] * share[first[shared]], 6)  # 1/3 of 99 is 33, not 34
    size[shared] = np.ceil(parts)
    every = np.arange(len(duration)) >= layers.optimizer
    every &= layers.layer < 0  # steps on the parameters of all layers at once
    kept = kept_gradients(work, size, layers)
    duration[every] *= kept
    updates = (first >= 0) & every[first]
    size[updates] = np.rint(size[updates] * kept)
    return replace(work, duration=duration.tolist(), storage_size=size, sums=sums)


def _along_sequence(sums: tuple[Sum, ...]) -> tuple[Sum, ...]:
    return tuple(
        replace(each, collective=kind, name=kind.replace("_", "-"))
        for each in sums
        for kind in ("reduce_scatter", "all_gather")
    )


def weight_rows(graph: Graph, layers: Layers) -> frozenset[int]:
    """Return the backward nodes that only the optimizer waits for: gradients of weights.

    They are at the place of a parameter ("h.0.mlp.weight"), or no other layer waits for them, not
    even through others of their own layer.
    """
    rows = layers.backward_rows
    named = [name.endswith((".weight", ".bias")) for name in graph.names]
    passed_on: set[int] = set()
    for row in reversed(rows):
        for before in graph.predecessors(row).tolist():
            if before < rows.start or named[graph.name[before]]:
                continue
            if row in passed_on or layers.layer[before] != layers.layer[row]:
                passed_on.add(before)
    with_weights = [row for row in rows if row not in passed_on and layers.layer[row] > 0]
    named_rows = [row for row in rows if named[graph.name[row]]]
    return frozenset(with_weights) | frozenset(named_rows)


def kept_gradients(work: Work, size: Ints, layers: Layers) -> float:
    """Return the share of the bytes of gradients that remains if storages have these sizes."""
    storages = work.graph.storages
    of_one, left = (
        layers.gradient_bytes(storages.first, storages.last, each).sum()
        for each in (storages.size, size)
    )
    return float(left / of_one) if of_one else 1.0


def _split_rows(work: Work, layers: Layers) -> Bools:
    graph = work.graph
    inside = _numbered_most(layers)
    places = [graph.names[code] for code in graph.name.tolist()]
    ops = [op.name for op in graph.ops]
    deep = {  # layers that have modules of their own
        int(layers.layer[row])
        for row in layers.forward_rows
        if inside[row] and places[row] != layers.names[layers.layer[row]]
    }
    rows = np.zeros(len(graph), dtype=np.bool_)
    for row in np.flatnonzero(inside & (graph.resource != HOST)).tolist():
        place, layer = places[row], int(layers.layer[row])
        name = layers.names[layer]
        whole = NORM.search(place.rpartition(".")[2].lower()) or "norm" in ops[graph.op[row]]
        its_own = layer not in deep if place == name else place.startswith(f"{name}.")
        rows[row] = its_own and not whole
    known = [ops[code] for code in set(graph.op[rows].tolist()) if ops[code].startswith("aten.")]
    if known and not any(PRODUCT.search(name) for name in known):
        rows[:] = False
    return rows


def _inside(work: Work, place: str) -> Bools:
    graph = work.graph
    within = [name == place or name.startswith(f"{place}.") for name in graph.names]
    return np.array(within, dtype=np.bool_)[graph.name]


def _numbered_most(layers: Layers) -> Bools:
    """Return the nodes of the longest list of layers whose names differ only in the number."""
    lists = Counter(name.rpartition(".")[0] for name in layers.names if is_numbered(name))
    longest = max(lists, key=lists.__getitem__, default="")
    family = [is_numbered(name) and name.rpartition(".")[0] == longest for name in layers.names]
    return np.array([*family, False])[layers.layer]


def _sums(work: Work, layers: Layers, split_rows: Bools) -> dict[int, tuple[Sum, ...]]:
    written = work.graph.bytes_written
    sums: dict[int, tuple[Sum, ...]] = {}
    outputs: dict[int, list[int]] = {}  # of each layer, in the order of the forward pass
    for layer, run, alone in _runs(work, layers, split_rows, layers.forward_rows):
        size = int(written[run[-1]])
        outputs.setdefault(layer, []).append(size)
        sums[run[-1]] = _all_reduces(size, alone)
    for layer, run, alone in _runs(work, layers, split_rows, layers.backward_rows):
        left = outputs.get(layer, [0])
        sums[run[-1]] = _all_reduces(left.pop() if len(left) > 1 else left[0], alone)
    return sums


def _all_reduces(size: int, alone: bool) -> tuple[Sum, ...]:
    return (Sum("all_reduce", size, "all-reduce"),) * (SUMS_OF_A_LAYER if alone else 1)


def _runs(
    work: Work, layers: Layers, split_rows: Bools, rows: range
) -> list[tuple[int, list[int], bool]]:
    """Return runs of split nodes of one layer, and whether one node is all that the layer has."""
    busy = [row for row in rows if work.graph.resource[row] != HOST]
    count = Counter(int(layers.layer[row]) for row in busy)
    runs = []
    for (layer, shared), run in groupby(
        busy, key=lambda row: (int(layers.layer[row]), bool(split_rows[row]))
    ):
        if shared:
            runs.append((layer, list(run), count[layer] == 1))
    return runs


def recomputed_of(graph: Graph, kind: str) -> Callable[[Sequence[int]], list[int]]:
    """Return which nodes of a layer are recomputed under a `kind` of recomputation.

    "selective": all but attention and the first, third, ... matrix product (torchtitan,
    `activation_checkpoint.selective_ac_option = "op"`). "except-products": all but matrix products
    and what ranks that share layers gather and sum (JAX's `dots_with_no_batch_dims_saveable`,
    MaxText's `minimal`). "elementwise": all but these and attention (MaxText's
    `minimal_with_context`). "attention": from the scores up to the product with the values, in one
    kernel or several (Megatron-Core, `recompute_modules: core_attn`).
    "latent": queries, keys and values of latent attention.
    """
    names = [_plain(op.name) for op in graph.ops]

    def selective(nodes: Sequence[int]) -> list[int]:
        selected, products = [], 0
        for row in nodes:
            name = names[graph.op[row]]
            multiplies = name in (*PRODUCTS, "_scaled_mm")
            products += multiplies
            saved = products % 2 == 1 if multiplies else ATTENTION in name
            if not saved and name != "reduce_scatter_tensor":
                selected.append(row)
        return selected

    def except_products(nodes: Sequence[int]) -> list[int]:
        kept = (*PRODUCTS, "_scaled_mm", "_grouped_mm", *EXCHANGES)
        return [row for row in nodes if names[graph.op[row]] not in kept]

    def elementwise(nodes: Sequence[int]) -> list[int]:
        return [row for row in except_products(nodes) if ATTENTION not in names[graph.op[row]]]

    def attention(nodes: Sequence[int]) -> list[int]:
        drops = [row for row in nodes if names[graph.op[row]] == "native_dropout"]
        within = [row for row in drops if "attention" in graph.names[graph.name[row]]]
        scores = [row for row in nodes if names[graph.op[row]] in ("bmm", "_softmax")]
        fused = [row for row in nodes if ATTENTION in names[graph.op[row]]]
        return sorted([*scores, *within]) if scores else fused

    def latent(nodes: Sequence[int]) -> list[int]:
        places = {row: graph.names[graph.name[row]] for row in nodes}
        if not any(place.endswith(".kv_up") for place in places.values()):
            return []
        return [row for row in nodes if places[row].endswith(LATENT)]

    return {
        "selective": selective,
        "except-products": except_products,
        "elementwise": elementwise,
        "attention": attention,
        "latent": latent,
    }[kind]


LATENT = (".query_up", ".kv_up", ".rotary")
"""Ends of places of what latent attention makes of its latents."""

EXCHANGES = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
"""Collectives of ranks that share layers, by their names without framework and overload."""

ATTENTION = "scaled_dot_product"
PRODUCTS = ("mm", "addmm")
"""Ops, by their names without framework and overload, whose last two arguments are the matrices."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that is split: heads, or a matrix along one of its sides."""

    what: str
    lengths: tuple[int, ...]
    are_heads: bool = False

    def divides(self, ranks: int) -> bool:
        if self.are_heads:
            return ranks <= max(self.lengths)
        return any(length % ranks == 0 for length in self.lengths)


def check_divides(graph: Graph, rows: Iterable[int], ranks: int) -> None:
    """Check that so many tensor-parallel ranks can share these nodes."""
    codes = dict.fromkeys(graph.op[row] for row in rows)
    reasons = dict.fromkeys(part for code in codes for part in _divided(graph.ops[code]))
    parts = sorted(reasons, key=lambda part: not part.are_heads)
    for part in parts:
        if not part.divides(ranks):
            most = max(max(part.lengths) for part in parts)
            sound = [n for n in range(1, most + 1) if all(part.divides(n) for part in parts)]
            near = min(sound, key=lambda number: abs(number - ranks))
            reason = "is more than" if part.are_heads else "does not divide"
            raise InputError(
                f"strategy: tp={ranks} {reason} {part.what} of the model: tp={near} fits"
            )


def shares_of_heads(graph: Graph, rows: Iterable[int], ranks: int) -> dict[str, float]:
    """Return the largest share of each attention's whole heads: of 12 heads, 8 ranks have 2."""
    shares: dict[str, float] = {}
    for row in rows:
        for part in _divided(graph.ops[graph.op[row]]):
            if part.are_heads:
                place, number = graph.names[graph.name[row]], max(part.lengths)
                shares[place] = max(shares.get(place, 0.0), -(-number // ranks) / number)
    return shares


def _plain(name: str) -> str:
    """Return "mm" of "aten.mm.default"."""
    return name.split(".")[1] if name.count(".") > 1 else name


def _divided(op: Op) -> list[_Part]:
    name = _plain(op.name)
    if not op.arguments or not (ATTENTION in name or name in PRODUCTS):
        return []
    arguments, _ = decode_arguments(op.arguments)
    shapes = [argument.shape for argument in arguments if isinstance(argument, TensorArgument)]
    if ATTENTION in name:  # batch x heads x length x size: queries, then keys
        heads = {shape[1] for shape in shapes[:2] if len(shape) == 4}
        return [_Part(f"the {number} heads", (number,), True) for number in sorted(heads)]
    rows, columns = shapes[-1] if shapes and len(shapes[-1]) == 2 else (0, 0)
    return [_Part(f"a matrix of {rows} x {columns}", (rows, columns))] if rows * columns else []
