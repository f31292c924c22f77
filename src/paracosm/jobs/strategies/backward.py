"""The backward pass of one stage for one micro-batch: receive, compute, reduce, send.

    receive        | dy |
    compute             | layer 1 | layer 0 |
    communication                 | reduce 1 | reduce 0 |
    send                                    | dx |

With recomputation every layer's forward pass stands before its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from paracosm.jobs.blocks import Block
from paracosm.jobs.strategies.forward import Forward
from paracosm.jobs.strategies.memory import first_task, hold_again, hold_gradients, let_go
from paracosm.jobs.strategies.recompute import recomputed_layers
from paracosm.jobs.strategies.rows import RowWriter
from paracosm.jobs.strategies.sharded import Gathers
from paracosm.jobs.strategies.stage import Stage, before, receive, send

__all__ = ["Follower", "backward_block"]


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
        writer.hold(part.sent, first_task(plan, part.backward, rows.row_of))
        writer.release(part.sent, rows.end)
    freed = follower.freed if follower else {}
    hold_again(plan, part, rows, again)
    hold_gradients(plan, part, rows, None if stay else freed)
    let_go(forward.left, rows)
    return writer.block()
