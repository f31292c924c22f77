"""Which memory a pass holds, and until when.

A storage is held from the task of the node that allocates it to that of the last node of the stage
that uses it. What the backward pass looks at is held for every micro-batch from its forward pass to
its backward pass. What only other stages use is held until it has been sent; what they send, from
the first task that looks at it until the backward pass is over. Gradients are held for good, or
only until they have been added up, reduced or scattered. What the optimizer allocates for its step
is held until its last node has used it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.jobs.strategies.part import Part
from paracosm.jobs.strategies.plan import Plan
from paracosm.jobs.strategies.rows import RowWriter
from paracosm.jobs.strategies.work import DEVICE

__all__ = [
    "Held",
    "first_task",
    "hold_activations",
    "hold_again",
    "hold_gradients",
    "hold_updates",
    "let_go",
]

Held = list[tuple[int, int]]
"""(bytes, last row of the graph that uses them) of what a forward pass leaves behind."""


def hold_activations(plan: Plan, part: Part, rows: RowWriter, forgotten: Mapping[int, int]) -> Held:
    """Take down what a forward pass allocates, and return what is still there when it is over.

    Args:
        plan, part: whose forward pass.
        rows: the pass, complete.
        forgotten: the last task of each layer that is computed again.
    """
    storages, writer = plan.work.graph.storages, rows.writer
    backward = frozenset(part.backward)
    here = np.isin(storages.first, part.forward)
    fed = (storages.first < 0) & np.isin(storages.last, [*part.forward, *part.backward])
    left: Held = []
    for number in np.flatnonzero(here | fed).tolist():
        size = int(plan.work.storage_size[number])
        first, last = int(storages.first[number]), int(storages.last[number])
        taken = rows.taken(first) if first >= 0 else 0
        writer.hold(size, taken)
        if last in rows.row_of:
            writer.release(size, max(taken, rows.given(last)))
            continue
        if first >= 0 and (layer := int(plan.layers.layer[first])) in forgotten:
            kept = _handed_on(plan, first, size)
            writer.release(size - kept, max(taken, forgotten[layer]))
            size = kept
        if last in backward or (last >= plan.layers.optimizer and backward):
            left.append((size, last))
        elif last < plan.layers.optimizer:
            writer.release(size, rows.end)
    return left


def hold_again(plan: Plan, part: Part, rows: RowWriter, layers: frozenset[int]) -> None:
    """Take down what the layers that are computed again in a backward pass allocate."""
    storages = plan.work.graph.storages
    for number in np.flatnonzero(np.isin(storages.first, part.forward)).tolist():
        first, last = int(storages.first[number]), int(storages.last[number])
        if plan.layers.layer[first] in layers:
            size = int(plan.work.storage_size[number])
            _hold(rows, size - _handed_on(plan, first, size), first, last)


def first_task(plan: Plan, nodes: Sequence[int], row_of: Mapping[int, int]) -> int:
    """Return the first task of a pass on the device, which may look at what has come."""
    return next((row_of[node] for node in nodes if plan.work.lane[node] in DEVICE), 0)


def let_go(left: Held, rows: RowWriter) -> None:
    """Take down in a backward pass what its forward pass has left behind."""
    for size, last in left:
        rows.writer.release(size, rows.given(last) if last in rows.row_of else rows.computed)


def hold_gradients(
    plan: Plan, part: Part, rows: RowWriter, freed: Mapping[int, int] | None
) -> None:
    """Take down what a backward pass allocates.

    Args:
        plan, part, rows: as for `hold_activations`.
        freed: the task at whose end the gradients of a node are let go; those of nodes that are not
            in it go at the end of their own. None where they stay.
    """
    storages = plan.work.graph.storages
    for number in np.flatnonzero(np.isin(storages.first, part.backward)).tolist():
        size = int(plan.work.storage_size[number])
        first, last = int(storages.first[number]), int(storages.last[number])
        if last < len(plan.work.graph):
            _hold(rows, size, first, last)
            continue
        taken = rows.taken(first)
        rows.writer.hold(size, taken)
        if freed is not None:
            rows.writer.release(size, max(taken, freed.get(first, taken)))


def hold_updates(plan: Plan, rows: RowWriter, share: Mapping[int, float]) -> None:
    """Take down what an optimizer step allocates, of every node the share that a rank does."""
    storages = plan.work.graph.storages
    for number in np.flatnonzero(np.isin(storages.first, list(share))).tolist():
        first, last = int(storages.first[number]), int(storages.last[number])
        size = round(int(plan.work.storage_size[number]) * share[first])
        if last < len(plan.work.graph):
            _hold(rows, size, first, last)
        else:
            rows.writer.hold(size, rows.taken(first))


def _hold(rows: RowWriter, size: int, first: int, last: int) -> None:
    """Hold bytes from one node to another, or where that is not here, to the end of the block."""
    taken = rows.taken(first)
    over = rows.given(last) if last in rows.row_of else rows.end
    rows.writer.hold(size, taken)
    rows.writer.release(size, max(taken, over))


def _handed_on(plan: Plan, row: int, size: int) -> int:
    """Return how many of the bytes that a node allocates later layers' forward passes look at.

    A layer as one node may keep more than it writes for the next one.
    """
    if plan.until[row] <= plan.layers.layer[row]:
        return 0
    return min(size, int(plan.work.graph.bytes_written[row]) or size)
