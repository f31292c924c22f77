"""Which memory a pass holds, and until when.

A storage is held from the task of the node that allocates it to that of the last node of the stage
that uses it. What the backward pass looks at is held for every micro-batch from its forward pass to
its backward pass. What only other stages use is held until it has been sent; what they send, from
the first task that looks at it until the backward pass is over. Gradients are held for good, or
only until they have been added up, reduced or scattered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.graphs.job.blocks import BlockWriter
from paracosm.graphs.strategies.part import Part
from paracosm.graphs.strategies.plan import Plan
from paracosm.graphs.strategies.work import DEVICE

__all__ = ["Held", "first_task", "hold_activations", "hold_again", "hold_gradients", "let_go"]

Held = list[tuple[int, int]]
"""(bytes, last row of the graph that uses them) of what a forward pass leaves behind."""


def hold_activations(
    plan: Plan,
    part: Part,
    writer: BlockWriter,
    row_of: Mapping[int, int],
    forgotten: Mapping[int, int],
) -> Held:
    """Take down what a forward pass allocates, and return what is still there when it is over.

    Args:
        plan, part: whose forward pass.
        writer: the block, complete.
        row_of: the task of each node in it.
        forgotten: the last task of each layer that is computed again.
    """
    storages = plan.work.graph.storages
    backward = frozenset(part.backward)
    here = np.isin(storages.first, part.forward)
    fed = (storages.first < 0) & np.isin(storages.last, [*part.forward, *part.backward])
    left: Held = []
    for number in np.flatnonzero(here | fed).tolist():
        size = int(plan.work.storage_size[number])
        first, last = int(storages.first[number]), int(storages.last[number])
        writer.hold(size, row_of[first] if first >= 0 else 0)
        if last in row_of:
            writer.release(size, row_of[last])
        elif first >= 0 and _is_forgotten(plan, first) and plan.layers.layer[first] in forgotten:
            writer.release(size, forgotten[int(plan.layers.layer[first])])
        elif last in backward or (last >= plan.layers.optimizer and backward):
            left.append((size, last))
        elif last < plan.layers.optimizer:
            writer.release(size, len(writer) - 1)
    return left


def hold_again(
    plan: Plan, part: Part, writer: BlockWriter, row_of: Mapping[int, int], layers: frozenset[int]
) -> None:
    """Take down what the layers that are computed again in a backward pass allocate."""
    storages = plan.work.graph.storages
    for number in np.flatnonzero(np.isin(storages.first, part.forward)).tolist():
        first, last = int(storages.first[number]), int(storages.last[number])
        if plan.layers.layer[first] in layers and _is_forgotten(plan, first):
            size = int(plan.work.storage_size[number])
            writer.hold(size, row_of[first])
            writer.release(size, row_of.get(last, len(writer) - 1))


def first_task(plan: Plan, nodes: Sequence[int], row_of: Mapping[int, int]) -> int:
    """Return the first task of a pass on the device, which may look at what has come."""
    return next((row_of[node] for node in nodes if plan.work.lane[node] in DEVICE), 0)


def let_go(left: Held, writer: BlockWriter, row_of: Mapping[int, int]) -> None:
    """Take down in a backward pass what its forward pass has left behind."""
    for size, last in left:
        writer.release(size, row_of.get(last, len(writer) - 1))


def hold_gradients(
    plan: Plan,
    part: Part,
    writer: BlockWriter,
    row_of: Mapping[int, int],
    freed: Mapping[int, int] | None,
) -> None:
    """Take down what a backward pass allocates.

    Args:
        plan, part, writer, row_of: as for `hold_activations`.
        freed: the task at whose end the gradients of a node are let go; those of nodes that are not
            in it go at the end of their own. None where they stay.
    """
    storages = plan.work.graph.storages
    for number in np.flatnonzero(np.isin(storages.first, part.backward)).tolist():
        size = int(plan.work.storage_size[number])
        first, last = int(storages.first[number]), int(storages.last[number])
        writer.hold(size, row_of[first])
        if last in row_of:
            writer.release(size, row_of[last])
        elif last < len(plan.work.graph):
            writer.release(size, len(writer) - 1)
        elif freed is not None:
            writer.release(size, freed.get(first, row_of[first]))


def _is_forgotten(plan: Plan, row: int) -> bool:
    """Return whether no later layer's forward pass looks at what a node makes."""
    return bool(plan.until[row] <= plan.layers.layer[row])
