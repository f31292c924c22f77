"""The forward pass of one stage for one micro-batch: receive, compute, send.

    receive   | x |
    compute       | layer 0 | layer 1 |
    send                              | y |

The first task waits for what is received, and all is sent when the last one is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paracosm.jobs.blocks import HERE, Block
from paracosm.jobs.strategies.memory import Held, first_task, hold_activations
from paracosm.jobs.strategies.recompute import recomputed_layers
from paracosm.jobs.strategies.rows import Ready, RowWriter
from paracosm.jobs.strategies.sharded import Gathers
from paracosm.jobs.strategies.stage import Stage, before, receive, send

__all__ = ["FORWARD", "Forward", "forward_block"]

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
        writer.hold(part.received, first_task(plan, part.forward, rows.row_of))
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
