"""Which layers each stage of a pipeline has, and how much they hand on.

    layers   | 0  1  2 | 3  4 | 5  6  7 |
    stages   |    0    |  1   |    2    |    of about the same time
                       ->     ->             bytes over the cuts, for every micro-batch

Gradients of the same sizes come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.graphs.graph import Graph
from paracosm.jobs.strategies.layers import Layers

__all__ = ["crossing_bytes", "stages_of"]


def stages_of(
    layers: Layers, time: npt.NDArray[np.float64], count: int, cut: Sequence[str]
) -> list[int]:
    """Return the stage of every layer.

    Args:
        layers: in order.
        time: seconds of every layer, forward and backward.
        count: of stages.
        cut: the first layer of each stage but the first one; where there is none, the longest stage
            is as short as can be, and then each one, from the last on, has as few layers as then
            can be.

    Raises:
        InputError: more stages than layers; a cut at a layer that is unknown or out of order.
    """
    if count > len(layers.names):
        raise InputError(
            f"strategy: {count} stages of {len(layers.names)} layers: pp x chunks may be "
            f"{len(layers.names)} at most"
        )
    begins = [0, *(_begin(layers, name) for name in cut)] if cut else _balanced(time, count)
    if any(later <= earlier for earlier, later in pairwise(begins)):
        raise InputError(f"strategy: cut={'+'.join(cut)}: layers must be in the model's order")
    numbers = np.arange(len(layers.names))
    return [int(stage) for stage in np.searchsorted(begins, numbers, side="right") - 1]


def crossing_bytes(
    graph: Graph, layers: Layers, stage: npt.NDArray[np.int64], count: int
) -> list[int]:
    """Return the bytes that pass from each of `count` stages to the next, for one micro-batch.

    They are what the forward pass of later stages looks at: what the nodes write that it waits for,
    or their largest storage where that is less (an op may write more than what is looked at, a
    layer as one node keeps more than what it hands on). Where nothing later waits for the stage or
    those before, it is what the last node of the stage writes.
    """
    sizes = np.zeros(len(graph), dtype=np.int64)
    there = graph.storages.first >= 0
    np.maximum.at(sizes, graph.storages.first[there], graph.storages.size[there])
    written = graph.bytes_written
    until = np.full(len(graph), -1, dtype=np.int64)  # the last stage that looks at a node
    for row in layers.forward_rows:
        before = graph.predecessors(row)
        np.maximum.at(until, before, stage[row])
    rows = np.arange(layers.backward)
    crossing = []
    for number in range(count - 1):
        own = rows[stage[: layers.backward] <= number]
        handed = own[until[own] > number]
        least = np.minimum(sizes[handed], written[handed])
        size = int(np.where(least > 0, least, sizes[handed] + written[handed]).sum())
        if not size:
            made = own[written[own] > 0]
            size = int(written[made[-1]]) if len(made) else 0
        crossing.append(size)
    return crossing


def _begin(layers: Layers, name: str) -> int:
    if name not in layers.names:
        raise InputError(f"strategy: cut: {unknown('layer', name, layers.names)}")
    return layers.names.index(name)


def _balanced(time: npt.NDArray[np.float64], count: int) -> list[int]:
    """Return where each stage begins, so that the longest takes the least time.

    Best[k][i] = min over j of max(best[k - 1][j], time of layers j to i): the linear partition.
    """
    n = len(time)
    total = np.concatenate(([0.0], np.cumsum(time)))
    best = np.full((count + 1, n + 1), np.inf)
    where = np.zeros((count + 1, n + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for stage in range(1, count + 1):
        for end in range(stage, n + 1):
            begins = np.arange(stage - 1, end)
            longest = np.maximum(best[stage - 1, begins], total[end] - total[begins])
            choice = len(longest) - 1 - int(np.argmin(longest[::-1]))
            best[stage, end], where[stage, end] = longest[choice], begins[choice]
    begins_at, end = [], n
    for stage in range(count, 0, -1):
        end = int(where[stage, end])
        begins_at.append(end)
    return begins_at[::-1]
