"""Which layer of the model every node of a graph belongs to.

A place that has a number in it names a layer: "h.0.attention.qkv" is of "h.0". Places between
those without one ("wte", "wpe"; "ln_f", "lm_head") come together as a layer of their own; in a
model without any number, every module at the top is a layer. Nodes without a place belong to the
layer before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, Graph

Ints = npt.NDArray[np.int64]

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
    current = last
    for row in rows:
        current = of_place.get(places[row], current)
        before = graph.predecessors(row)
        gradients = layer[before[before >= rows.start]]
        layer[row] = min(current, int(gradients.min(initial=current)))


def _parts(graph: Graph) -> tuple[int, int]:
    n = len(graph)
    order = np.where(graph.phase == PHASES.index("other"), -1, graph.phase)
    latest = np.maximum.accumulate(order) if n else order
    wrong = np.flatnonzero((order >= 0) & (order < latest))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"graph: node {int(graph.id[row])} ({graph.ops[graph.op[row]].name}) is of the "
            f"{PHASES[order[row]]} pass, but stands behind the {PHASES[latest[row]]} pass: only "
            "strategy single takes a step whose parts are mixed"
        )
    return int(np.searchsorted(latest, BACKWARD)), int(np.searchsorted(latest, OPTIMIZER))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together: rows of the nodes that make them, in order; bytes."""

    rows: tuple[int, ...]
    size: int


def buckets_of(rows: Sequence[int], sizes: Ints, first: float, usual: float) -> list[Bucket]:
    """Return the buckets of these backward rows, as PyTorch's DDP fills them after one iteration.

    Gradients fill a bucket in the order in which they appear; the one that fills it up closes it
    (Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
    2020, sections 3.2 and 4.2). `first` and `usual` bytes close the first one and the others.
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
            buckets.append(Bucket(tuple(filled), size))
            filled, size = [], 0
    return [*buckets, Bucket(tuple(filled), size)] if filled else buckets
