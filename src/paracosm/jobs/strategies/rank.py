"""The program of one rank: its stages' passes in the order of the schedule, then the optimizer.

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

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES
from paracosm.jobs import Program
from paracosm.jobs.strategies.layers import Bucket, is_numbered
from paracosm.jobs.strategies.plan import Plan
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
from paracosm.jobs.strategies.stage import (
    Books,
    Costs,
    Gathers,
    Reductions,
    Stage,
    before,
    collective,
    receive,
    reduced_buckets,
    send,
)
from paracosm.jobs.strategies.strategy import SHARDINGS
from paracosm.jobs.strategies.work import COMMUNICATION, DEVICE, Replica, work_of
from paracosm.jobs.writer import HERE, Block, ProgramOfBlocks, last_on

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
    """Return what a rank of a stage does in an iteration."""
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
    """Return the blocks of a stage; whole gradients of one micro-batch stay where they are made."""
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
    """Check that so many tasks, so many times, make a program that can be held."""
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


@dataclass(frozen=True, slots=True)
class Pass:
    """The forward or backward pass of a micro-batch, in one chunk of a rank."""

    backward: bool
    microbatch: int
    chunk: int = 0


def order_of(
    schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1
) -> list[Pass]:
    """Return the passes of one rank of a pipeline, in order.

    Four ranks, eight micro-batches: forward passes 0 to 7 of one unit of time, backward passes a to
    h of two. GPipe (Huang et al. 2019) keeps the activations of all micro-batches:

        rank 0 |01234567.........aabbccddeeffgghh|
        rank 3 |...01234567aabbccddeeffgghh......|

    1F1B (PipeDream-Flush: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
    Clusters Using Megatron-LM", 2021, figure 4) has the same bubble, and keeps those of no more
    than `stages` - `stage` of them:

        rank 0 |0123......aa4bb5cc6dd7ee.ff.gg.hh|
        rank 3 |...0aa1bb2cc3dd4ee5ff6gg7hh......|

    Interleaved (figure 4, below) gives each rank several chunks of the model, v stages of 1/v of
    the length: as many micro-batches as there are stages go through one chunk, then through the
    next one. The bubble is 1/v of the above, for v times the messages.

    Args:
        schedule: one of `SCHEDULES`.
        stage: of the rank, of so many `stages`.
        microbatches: forward and backward passes of each of the rank's `chunks`.
    """
    if schedule == "interleaved":
        return _interleaved(stage, stages, microbatches, chunks)
    forward = [Pass(False, number) for number in range(microbatches)]
    backward = [Pass(True, number) for number in range(microbatches)]
    warm_up = microbatches if schedule == "gpipe" else min(stages - stage - 1, microbatches)
    return _one_by_one(forward, backward, warm_up)


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> list[Pass]:
    """Return Megatron's order: `stages` micro-batches through one chunk, then the next chunk."""
    forward, backward = [], []
    for number in range(microbatches * chunks):
        turn, within = divmod(number, stages * chunks)
        chunk, microbatch = within // stages, turn * stages + within % stages
        forward.append(Pass(False, microbatch, chunk))
        backward.append(Pass(True, microbatch, chunks - 1 - chunk))
    warm_up = (stages - stage - 1) * 2 + (chunks - 1) * stages
    return _one_by_one(forward, backward, min(warm_up, len(forward)))


def _one_by_one(forward: list[Pass], backward: list[Pass], warm_up: int) -> list[Pass]:
    order = forward[:warm_up]
    for ahead, back in zip(forward[warm_up:], backward, strict=False):
        order += [ahead, back]
    return order + backward[len(forward) - warm_up :]


def single_program(replica: Replica, books: Books) -> Program:
    """Return the program of a rank that runs the graph on its own.

    Its makespan is that of `paracosm.simulation.replay`, whose rules it follows. Nodes that
    communicate take the durations they have.
    """
    graph = replica.graph
    writer = books.writer()
    rows = RowWriter(work_of(replica), writer, _no_collective, {}, {})
    for row in range(len(graph)):
        rows.node(row, PHASES[graph.phase[row]])
    storages = graph.storages
    columns = (storages.size.tolist(), storages.first.tolist(), storages.last.tolist())
    for size, first, last in zip(*columns, strict=True):
        taken = rows.taken(max(first, 0)) if len(graph) else 0
        writer.allocate(size, taken)
        if last < len(graph):
            writer.release(size, max(taken, rows.given(last)))
    program = ProgramOfBlocks()
    program.place(writer.block(), 0)
    return program.program(sum(graph.resident.values()))


def _no_collective(collective: str, size: int) -> float:
    raise AssertionError("one rank has no collectives")


FORWARD = "forward"
"""The anchor of the forward block of the same micro-batch."""


@dataclass(frozen=True, eq=False)
class Forward:
    """A forward block, and what the backward pass finds when it is over."""

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

    `follow` makes what reduces or pushes the gradients. They `stay` where this pass allocates
    them, or go when they have been followed up.
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
