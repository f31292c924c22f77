"""The optimizer step of one stage: when all gradients are there and reduced.

    communication | reduce 0 |
    compute                  | step |
    communication                   | gather what the other ranks have updated |

Only ZeRO 1 and 2 gather.
"""

from __future__ import annotations

from dataclasses import replace

from paracosm.jobs.blocks import Block, last_on
from paracosm.jobs.strategies.memory import hold_updates
from paracosm.jobs.strategies.rows import RowWriter
from paracosm.jobs.strategies.stage import Stage, collective
from paracosm.jobs.strategies.work import COMMUNICATION, DEVICE

__all__ = ["optimizer_block"]


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
