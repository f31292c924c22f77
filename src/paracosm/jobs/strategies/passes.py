"""The blocks of one stage: forward pass, backward pass, optimizer step.

    receive        | x |                             | dy |
    compute            | layer 0 | layer 1 |              | layer 1 | layer 0 |
    communication                                                   | reduce 1 | reduce 0 |
    send                                   | y |                              | dx |

A pass waits for what it receives, and sends when its last task is done. With recomputation (Chen et
al. 2016) the forward pass keeps only what one layer hands to the next; before its backward pass
each layer is computed again, so that one layer's activations are there at a time. The optimizer
waits for all reductions; ZeRO 1 and 2 then gather what the other ranks have updated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from paracosm.jobs.blocks import HERE, Block, last_on
from paracosm.jobs.strategies.layers import is_numbered
from paracosm.jobs.strategies.reductions import Gathers
from paracosm.jobs.strategies.rows import (
    Held,
    Ready,
    RowWriter,
    first_task,
    hold_activations,
    hold_again,
    hold_gradients,
    hold_updates,
    let_go,
)
from paracosm.jobs.strategies.stage import Stage, before, collective, receive, send
from paracosm.jobs.strategies.work import COMMUNICATION, DEVICE

FORWARD = "forward"
"""The anchor of the forward block of the same micro-batch."""


@dataclass(frozen=True, eq=False)
class Forward:
    """A forward block, and what the backward pass finds when it is over.

    Attributes:
        block: the tasks.
        ready: what is there when nodes are done, seen from the backward block.
        result: what the first node of the backward pass waits for besides.
        left: memory that is still held.
    """

    block: Block
    ready: Mapping[int, Ready]
    result: Ready
    left: Held


def forward_block(stage: Stage, pulled: Ready = MappingProxyType({})) -> Forward:
    """Return the forward pass of a micro-batch, which waits for parameters that are `pulled`."""
    plan, part, writer = stage.plan, stage.part, stage.books.writer()
    came = {} if stage.is_first else receive(stage, writer, "activations", part.received)
    rows = RowWriter(plan.work, writer, stage.costs.of_tensor, {}, came)
    rows.wait({**came, **before(stage), **pulled})
    sections = plan.sections(part.forward)
    gathers = Gathers(stage, rows, [layer for layer, _ in sections])
    layer_end: dict[int, int] = {}
    for number, (layer, nodes) in enumerate(sections):
        gathers.begin(number)
        for row in nodes:
            rows.node(row, "forward")
        layer_end[layer] = rows.end
        gathers.end(number)
    gathers.close()
    if not stage.is_last:
        send(stage, rows, "activations", part.sent)
    forgotten = {layer: layer_end[layer] for layer in recomputed_layers(stage)}
    left = hold_activations(plan, part, rows, forgotten)
    if not stage.is_first:
        writer.allocate(part.received, first_task(plan, part.forward, rows.row_of))
        if part.backward:
            left.append((part.received, len(plan.work.graph)))
        else:
            writer.release(part.received, rows.end)
    ready = {row: _from_later(there) for row, there in rows.ready.items()}
    return Forward(writer.block(), ready, _from_later(rows.awaited), left)


def _from_later(ready: Ready) -> Ready:
    """Return what a backward block waits for, to whom these rows are those of another block."""
    return {
        (lane, FORWARD if anchor == HERE else anchor): row for (lane, anchor), row in ready.items()
    }


class Follower(Protocol):
    """Writes what becomes of gradients, while the nodes that make them are written."""

    @property
    def freed(self) -> Mapping[int, int]:
        """The task after which the gradients of a node are no longer needed whole."""

    def after(self, row: int) -> None:
        """Write what becomes possible when a node is done."""


def backward_block(
    stage: Stage,
    forward: Forward,
    follow: Callable[[RowWriter], Follower] | None,
    *,
    stay: bool = True,
) -> Block:
    """Return the backward pass of a micro-batch.

    Args:
        stage: whose.
        forward: of the same micro-batch.
        follow: makes what follows the pass, to reduce gradients or push them.
        stay: whether the gradients stay where this pass allocates them.
    """
    plan, part, writer = stage.plan, stage.part, stage.books.writer()
    came = {} if stage.is_last else receive(stage, writer, "gradients", part.sent)
    rows = RowWriter(plan.work, writer, stage.costs.of_tensor, forward.ready, came)
    rows.wait({**came, **before(stage), **forward.result})
    again = recomputed_layers(stage)
    sections = plan.sections(plan.backward_rows(part))
    forward_rows = dict(plan.sections(part.forward))
    gathers = Gathers(stage, rows, [layer for layer, _ in sections])
    follower = follow(rows) if follow else None
    for number, (layer, nodes) in enumerate(sections):
        gathers.begin(number)
        for row in forward_rows[layer] if layer in again else ():
            rows.node(row, "recompute")
        for row in nodes:
            rows.node(row, "backward")
            if follower:
                follower.after(row)
        gathers.end(number)
    gathers.close()
    if not stage.is_first:
        send(stage, rows, "gradients", part.received)
    if not stage.is_last:
        writer.allocate(part.sent, first_task(plan, part.backward, rows.row_of))
        writer.release(part.sent, rows.end)
    freed = follower.freed if follower else {}
    hold_again(plan, part, rows, again)
    hold_gradients(plan, part, rows, None if stay else freed)
    let_go(forward.left, rows)
    return writer.block()


def recomputed_layers(stage: Stage) -> frozenset[int]:
    """Return the layers of a stage that are computed again.

    They are those with a number ("h.0"), of which a model has many; without any, all layers. What
    comes before and after them (embedding, head, loss) is kept.
    """
    plan = stage.plan
    if not plan.strategy.recompute or not stage.part.backward:
        return frozenset()
    names = plan.layers.names
    some = any(is_numbered(name) for name in names)
    here = {layer for layer, _ in plan.sections(stage.part.forward)}
    with_backward = {layer for layer, _ in plan.sections(stage.part.backward)}
    return frozenset(
        layer for layer in here & with_backward if not some or is_numbered(names[layer])
    )


def optimizer_block(stage: Stage) -> Block:
    """Return the optimizer step of a stage.

    Where optimizer states are sharded, a rank updates its share of the parameters, in that share of
    the time and of the memory that the step takes for a while.
    """
    plan, strategy, writer = stage.plan, stage.plan.strategy, stage.books.writer()
    shard = 1 / strategy.data if strategy.sharding != "none" else 1.0
    share = {row: part * shard for row, part in stage.part.optimizer}
    duration = list(plan.work.duration)
    for row, part in share.items():
        duration[row] *= part
    work = replace(plan.work, duration=duration)
    rows = RowWriter(work, writer, stage.costs.of_tensor, {}, {})
    rows.wait({(lane, last_on(lane)): 0 for lane in (*DEVICE, COMMUNICATION)})
    for row in share:
        rows.node(row, "optimizer")
    hold_updates(plan, rows, share)
    size = round(plan.parameters * stage.part.share)
    if strategy.sharding in ("optimizer", "gradients") and size:
        updated = rows.done(DEVICE) or {(lane, last_on(lane)): 0 for lane in DEVICE}
        collective(stage, writer, "all-gather parameters", "all_gather", size, updated)
    return writer.block()
