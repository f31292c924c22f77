"""A stage's part of a graph: its rows, and what passes over its borders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paracosm.graphs.graph import Graph
from paracosm.jobs.strategies.layers import Layers
from paracosm.jobs.strategies.stages import crossing_bytes

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, eq=False)
class Part:
    """What one stage does.

    Attributes:
        number: of the stage; of so many.
        stages: how many there are.
        forward, backward: rows, in order.
        optimizer: rows, each with the share of it that this stage does.
        received, sent: bytes of activations that come from the stage before and go to the next;
            gradients of the same sizes go back.
        share: of the parameters, by the bytes of their gradients.
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
    graph: Graph, layers: Layers, stage_of_layer: list[int], gradients: np.ndarray
) -> list[Part]:
    """Return the parts of all stages.

    Args:
        graph, layers: of the replica.
        stage_of_layer: of every layer.
        gradients: bytes of gradients that each node makes.
    """
    stages = max(stage_of_layer) + 1
    stage = np.where(layers.layer >= 0, np.array(stage_of_layer)[layers.layer], -1)
    crossing = [0, *crossing_bytes(graph, layers, stage, stages), 0]
    held = np.bincount(stage[stage >= 0], weights=gradients[stage >= 0], minlength=stages)
    share = held / held.sum() if held.sum() else np.full(stages, 1 / stages)
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
