"""The program of one rank: its stages' passes in the order of the schedule, then the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.jobs import Program
from paracosm.jobs.blocks import Block, ProgramOfBlocks
from paracosm.jobs.strategies.backward import backward_block
from paracosm.jobs.strategies.costs import Costs
from paracosm.jobs.strategies.data_parallel import Reductions, reduced_buckets
from paracosm.jobs.strategies.forward import FORWARD, Forward, forward_block
from paracosm.jobs.strategies.gradients import Bucket
from paracosm.jobs.strategies.optimizer import optimizer_block
from paracosm.jobs.strategies.orders import order_of
from paracosm.jobs.strategies.plan import Plan
from paracosm.jobs.strategies.stage import Books, Stage
from paracosm.jobs.strategies.strategy import SHARDINGS

__all__ = ["check_length", "rank_program"]

LONGEST_PROGRAM = 20_000_000
"""Tasks: about 2 GB."""


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Blocks of one stage; `last` is the backward pass of the last micro-batch."""

    forward: Block
    backward: Block
    last: Block

    def __len__(self) -> int:
        return len(self.forward) + len(self.backward)


def rank_program(plan: Plan, stage: int, costs: Costs, books: Books) -> Program:
    """Return what a rank of a stage does in an iteration.

    Args:
        plan: of the job.
        stage: of the rank in its pipeline.
        costs: of its communication.
        books: that the programs of the job share.

    Raises:
        InputError: more micro-batches than can be written down.
    """
    strategy = plan.strategy
    numbers = [stage + chunk * strategy.pipeline for chunk in range(strategy.chunks)]
    stages = [Stage(plan, plan.parts[n], costs, books) for n in numbers]
    chunks = [_chunk(each) for each in stages]
    check_length("microbatches", strategy.microbatches, sum(map(len, chunks)))
    program = ProgramOfBlocks()
    begun: dict[tuple[int, int], int] = {}
    trains = len(plan.layers.backward_rows) > 0
    for each in order_of(
        strategy.schedule, stage, strategy.pipeline, strategy.microbatches, strategy.chunks
    ):
        blocks, key = chunks[each.chunk], (each.chunk, each.microbatch)
        if not each.backward:
            begun[key] = program.place(blocks.forward, each.microbatch)
        elif trains:
            final = each.microbatch == strategy.microbatches - 1
            block = blocks.last if final else blocks.backward
            program.place(block, each.microbatch, {FORWARD: begun[key]})
    for each_stage in stages:
        program.place(optimizer_block(each_stage))
    return program.program(_resident(plan, numbers))


def _chunk(stage: Stage) -> _Chunk:
    """Return the blocks of a stage.

    The gradients of one micro-batch stay where they are made, unless they are sharded; those of
    several are added up elsewhere.
    """
    strategy, forward = stage.plan.strategy, forward_block(stage)
    stay = strategy.microbatches == 1 and strategy.sharding in ("none", "optimizer")
    last = _backward(stage, forward, reduced_buckets(stage, last=True), stay)
    if strategy.microbatches == 1:
        return _Chunk(forward.block, last, last)
    usual = _backward(stage, forward, reduced_buckets(stage, last=False), stay)
    return _Chunk(forward.block, usual, last)


def _backward(stage: Stage, forward: Forward, buckets: list[Bucket], stay: bool) -> Block:
    return backward_block(stage, forward, lambda rows: Reductions(stage, rows, buckets), stay=stay)


def check_length(key: str, times: int, tasks: int) -> None:
    """Check that so many tasks, so many times, make a program that can be held.

    Raises:
        InputError: they do not.
    """
    if tasks * times > LONGEST_PROGRAM:
        raise InputError(
            f"strategy: {key}={times} times {tasks:,} tasks are more than a rank may have, "
            f"{LONGEST_PROGRAM:,}: {key}={max(LONGEST_PROGRAM // tasks, 1)} fits"
        )


def _resident(plan: Plan, numbers: list[int]) -> int:
    """Return the bytes that a rank holds throughout: its share of what the replica holds.

    What is sharded is divided once more, between the data-parallel ranks. Inputs are those of one
    micro-batch, on every stage. Where several micro-batches add up their gradients, or gradients
    are sharded, those are held throughout as well.
    """
    strategy = plan.strategy
    stage = SHARDINGS.index(strategy.sharding)
    own = sum(plan.parts[number].share for number in numbers)
    share = {
        "inputs": 1.0,
        "optimizer": own / strategy.data if stage >= 1 else own,
        "gradients": own / strategy.data if stage >= 2 else own,
        "parameters": own / strategy.data if stage >= 3 else own,
    }
    held = sum(size * share.get(what, own) for what, size in plan.resident.items())
    if strategy.microbatches > 1 or stage >= 2:
        held += share["gradients"] * float(plan.gradients.sum())
    return round(held)
