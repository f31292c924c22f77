"""The program of one rank: its stages' passes in the order of the schedule, then the optimizer.

    receive        | x |                             | dy |
    compute            | layer 0 | layer 1 |              | layer 1 | layer 0 |
    communication                                                   | reduce 1 | reduce 0 |
    send                                   | y |                              | dx |

A pass waits for what it receives, and sends when its last task is done. With recomputation (Chen et
al. 2016) the forward pass keeps only each layer's input; each layer is computed again before its
backward pass, so that only one layer's activations are held at a time. The optimizer waits for all
reductions; ZeRO 1 and 2 then gather what the other ranks have updated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np

from paracosm.cluster.hardware import HostRates
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES
from paracosm.jobs.job import Program
from paracosm.jobs.strategies.layers import is_numbered, recomputed_of
from paracosm.jobs.strategies.plan import Plan, uses_of
from paracosm.jobs.strategies.rows import (
    Held,
    Ready,
    RowWriter,
    first_task,
    hold_activations,
    hold_gradients,
    hold_recomputed,
    hold_updates,
    kept_of_layers,
    release_kept,
    row_anchors,
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
from paracosm.jobs.strategies.work import (
    COMMUNICATION,
    COMPUTE,
    DEVICE,
    OFFLOAD,
    RELOAD,
    UPDATE,
    Replica,
    work_of,
)
from paracosm.jobs.writer import HERE, Block, BlockWriter, ProgramOfBlocks, Use, last_on

RECEIVED: Use = "activations", "of other stages"
"""What a stage is given: activations by the one before, their gradients by the one after."""

LONGEST_PROGRAM = 10_000_000
"""Tasks: about 2 GB."""


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Blocks of one stage; `last` is the backward pass of the last micro-batch."""

    forward: Block
    backward: Passes
    last: Passes


def rank_program(plan: Plan, stage: int, costs: Costs, books: Books) -> Program:
    """Return the program of a rank of a stage for one iteration."""
    strategy = plan.strategy
    numbers = [stage + chunk * strategy.pipeline for chunk in range(strategy.chunks)]
    stages = [Stage(plan, plan.parts[n], costs, books) for n in numbers]
    chunks = [_chunk(stage) for stage in stages]
    tasks = sum(len(chunk.forward) + sum(map(len, chunk.backward)) for chunk in chunks)
    check_length("microbatches", strategy.microbatches, tasks)
    program = ProgramOfBlocks()
    begun: dict[tuple[int, int], dict[str, int]] = {}
    trains = len(plan.layers.backward_rows) > 0
    for each in order_of(
        strategy.schedule, stage, strategy.pipeline, strategy.microbatches, strategy.chunks
    ):
        blocks, key = chunks[each.chunk], (each.chunk, each.microbatch)
        if not each.backward:
            begun[key] = {FORWARD: program.place(blocks.forward, each.microbatch)}
        elif trains:
            final = each.microbatch == strategy.microbatches - 1
            block = (blocks.last if final else blocks.backward)[each.weights]
            begun[key][BACKWARD] = program.place(block, each.microbatch, begun[key])
    for each_stage in stages:
        program.place(optimizer_block(each_stage))
    return program.program(*_throughout(plan, numbers))


def _chunk(stage: Stage) -> _Chunk:
    strategy, forward = stage.plan.strategy, forward_block(stage)
    stay = strategy.sharding in ("none", "optimizer") and not stage.plan.adds_up
    stay = stay and not strategy.offload_optimizer

    def backward(last: bool) -> Passes:
        buckets = reduced_buckets(stage, last=last)
        return backward_blocks(
            stage, forward, lambda rows: Reductions(stage, rows, buckets), stay=stay
        )

    last = backward(True)
    usual = last if strategy.microbatches == 1 else backward(False)
    return _Chunk(forward.block, usual, last)


def check_length(key: str, times: int, tasks: int) -> None:
    """Check that a program of so many tasks is not too large to be held."""
    if tasks * times > LONGEST_PROGRAM:
        raise InputError(
            f"strategy: {key}={times} times {tasks:,} tasks are more than a rank may have, "
            f"{LONGEST_PROGRAM:,}: {key}={max(LONGEST_PROGRAM // tasks, 1)} fits"
        )


def _throughout(plan: Plan, numbers: list[int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes that a rank holds throughout, its share of the replica's, by kind, and those
    that its host holds for it: where that updates, what it updates, and the gradients.

    Sharded data is further divided between the data-parallel ranks. Inputs are those of one
    micro-batch, on every stage. If several micro-batches add up their gradients, or they have a
    buffer, those are held throughout as well. Shards in single precision have no copy in half.
    """
    strategy = plan.strategy
    stage = SHARDINGS.index(strategy.sharding)
    own_share = sum(plan.parts[number].share for number in numbers)
    rows = [row for number in numbers for row in plan.parts[number].backward]
    made = plan.gradients[rows]
    of_experts = float(made[plan.of_experts[rows]].sum()) / max(float(made.sum()), 1.0)
    _, of_all = strategy.sharing()
    _, of_same = strategy.sharing(experts=True)
    sharded = own_share * ((1 - of_experts) / of_all + of_experts / of_same)
    share = {
        "inputs": 1.0,
        "optimizer": sharded if stage >= 1 else own_share,
        "master weights": sharded if stage >= 1 else own_share,
        "gradients": sharded if stage >= 2 else own_share,
        "parameters": sharded if stage >= 3 else own_share,
    }
    held = {what: size * share.get(what, own_share) for what, size in plan.resident.items()}
    on_host = dict[str, float]()
    if strategy.offload_optimizer:
        on_host = {what: held.pop(what) for what in ON_HOST if what in held}
        on_host["gradients"] = share["gradients" if stage >= 2 else "optimizer"] * float(made.sum())
    elif stage == 3 and plan.weights == "single":
        single = held.pop("master weights", 0.0)
        held["parameters"] = held.get("parameters", 0.0) + single / 2  # 4 bytes in place of 2
    leaves = strategy.offload_optimizer and stage >= 2  # with every micro-batch
    if plan.adds_up and not held.get("gradients") and not leaves:
        of_gradients = share["gradients"] * float(plan.gradients.sum())
        held["gradients"] = held.get("gradients", 0.0) + of_gradients
    return whole_bytes(held), whole_bytes(on_host)


ON_HOST = ("optimizer", "master weights")
"""What the host has where it updates."""


def whole_bytes(held: Mapping[str, float]) -> dict[str, int]:
    """Return whole bytes by kind of memory, whose sum is rounded once."""
    sizes, total = dict[str, int](), 0.0
    for what, size in held.items():
        kind = {"buffers": "parameters"}.get(what, what)
        before, total = round(total), total + size
        sizes[kind] = sizes.get(kind, 0) + round(total) - before
    return sizes


@dataclass(frozen=True, slots=True)
class Pass:
    """The forward or backward pass of a micro-batch, in one chunk of a rank."""

    backward: bool
    microbatch: int
    chunk: int = 0
    weights: bool = False  # whether it is what the backward pass has put off


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

    Zero-bubble (ZB-H1: Qi et al., "Zero Bubble Pipeline Parallelism", 2023, section 3.1) has
    backward passes of two halves: the gradients of activations, which the stage before waits for,
    and those of weights, A to H, which `stage` micro-batches later are early enough:

        rank 0 |0123...aA4bB5cC6dD7eE.fF.gG.hH|
        rank 3 |...0a1b2c3dA4eB5fC6gD7hEFGH...|

    As many activations are kept as by 1F1B. The bubble of each stage but one is F + B - W, in
    place of F + B + W, the times of the forward pass and of the two halves of the backward pass.
    """
    if schedule == "interleaved":
        return _interleaved(stage, stages, microbatches, chunks)
    forward = [Pass(False, number) for number in range(microbatches)]
    backward = [Pass(True, number) for number in range(microbatches)]
    warm_up = microbatches if schedule == "gpipe" else min(stages - stage - 1, microbatches)
    order = _one_by_one(forward, backward, warm_up)
    if schedule != "zero-bubble":
        return order
    later = [replace(each, weights=True) for each in backward]
    halves = []
    for each in order:
        halves.append(each)
        if each.backward and each.microbatch >= stage:
            halves.append(later[each.microbatch - stage])
    return halves + later[max(microbatches - stage, 0) :]


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
    storages, use_of = graph.storages, uses_of(graph)
    columns = (storages.size.tolist(), storages.first.tolist(), storages.last.tolist())
    for size, first, last in zip(*columns, strict=True):
        taken = rows.taken(max(first, 0)) if len(graph) else 0
        use = use_of(first, last)
        writer.allocate(size, taken, use)
        if last < len(graph):
            writer.release(size, max(taken, rows.given(last)), use)
    program = ProgramOfBlocks()
    program.place(writer.block(), 0)
    return program.program(whole_bytes(graph.resident))


def _no_collective(role: str, collective: str, size: int) -> float:
    raise AssertionError("one rank has no collectives")


FORWARD, BACKWARD = "forward", "backward"
"""The anchors of the forward and the backward block of the same micro-batch."""

Passes = tuple[Block, ...]
"""A backward pass, and what it puts off."""


@dataclass(frozen=True, eq=False)
class Forward:
    """A forward block, and what the backward pass finds when it is over."""

    block: Block
    ready: Mapping[int, Ready]
    result: Ready
    left: Held
    away: Mapping[int, Held]  # what waits in the host's memory, by layer


def forward_block(stage: Stage, pulled: Ready = MappingProxyType({})) -> Forward:
    """Return the forward pass of a micro-batch, which waits for parameters that are `pulled`."""
    plan, part, writer = stage.plan, stage.part, stage.books.writer()
    came = {} if stage.is_first else receive(stage, writer, "activations", part.received)
    rows = RowWriter(plan.work, writer, stage.costs.of, {}, came)
    rows.wait({**came, **before(stage), **pulled})
    sections = plan.sections(part.forward)
    gathers = Gathers(stage, rows, [layer for layer, _ in sections])
    again, away = recomputed_rows(stage), offloaded(stage)
    layer_end: dict[int, int] = {}
    sent_away: dict[int, int] = {}
    for number, (layer, nodes) in enumerate(sections):
        gathers.begin(number)
        for row in nodes:
            rows.node(row, "forward")
        layer_end[layer] = rows.end
        gathers.end(number)
        if layer in away:
            sent_away[layer] = move(stage, rows, OFFLOAD, layer, away[layer])
    gathers.close()
    if not stage.is_last:
        send(stage, rows, "activations", part.sent)
    forgotten = {row: layer_end[int(plan.layers.layer[row])] for row in again}
    left = hold_activations(plan, part, rows, forgotten, sent_away)
    if not stage.is_first:
        writer.allocate(part.received, first_task(plan, part.forward, rows.row_of), RECEIVED)
        if part.backward:
            left.append((part.received, len(plan.work.graph), RECEIVED))
        else:
            writer.release(part.received, rows.end, RECEIVED)
    ready = {row: _dependencies_of_later_block(there, FORWARD) for row, there in rows.ready.items()}
    return Forward(
        writer.block(), ready, _dependencies_of_later_block(rows.awaited, FORWARD), left, away
    )


def _dependencies_of_later_block(ready: Ready, block: str) -> Ready:
    """Return what a later block waits for, for which these rows are another block's."""
    return {
        (lane, block if anchor == HERE else anchor): row for (lane, anchor), row in ready.items()
    }


class Follower(Protocol):
    """Writes the reductions or pushes of gradients, as the nodes that make them are written."""

    @property
    def freed(self) -> Mapping[int, int]:
        """The task after which the gradients of a node are no longer needed in full."""

    def after(self, row: int) -> None:
        """Write what becomes possible when a node is done."""


def backward_blocks(
    stage: Stage, forward: Forward, follow: Callable[[RowWriter], Follower] | None, *, stay: bool
) -> Passes:
    """Return the backward pass of a micro-batch, and its deferred part, if any.

    `follow` makes the object that reduces or pushes the gradients. They `stay` where this pass
    allocates them, or are released after that.
    """
    plan, part, writer = stage.plan, stage.part, stage.books.writer()
    came = {} if stage.is_last else receive(stage, writer, "gradients", part.sent)
    rows = RowWriter(plan.work, writer, stage.costs.of, forward.ready, came, plan.halved)
    rows.wait({**came, **before(stage), **forward.result})
    again = recomputed_rows(stage)
    sections = plan.sections(plan.backward_rows(part))
    forward_rows = dict(plan.sections(part.forward))
    gathers = Gathers(stage, rows, [layer for layer, _ in sections])
    follower = follow(rows) if follow and not plan.put_off else None
    reloads = Reloads(stage, rows, forward.away, [layer for layer, _ in sections])
    for number, (layer, nodes) in enumerate(sections):
        gathers.begin(number)
        reloads.begin(number)
        for row in forward_rows.get(layer, ()):
            if row in again:
                rows.node(row, "recompute")
        for row in nodes:
            if row not in plan.deferred:
                rows.node(row, "backward")
            if follower:
                follower.after(row)
        gathers.end(number)
    gathers.close()
    if not stage.is_first:
        send(stage, rows, "gradients", part.received)
    if not stage.is_last:
        writer.allocate(part.sent, first_task(plan, part.backward, rows.row_of), RECEIVED)
        writer.release(part.sent, rows.end, RECEIVED)
    freed = follower.freed if follower else {}
    later: Held | None = [] if plan.put_off else None
    made = [row for row in part.backward if row not in plan.put_off]
    hold_recomputed(plan, part, rows, again, later)
    hold_gradients(plan, rows, made, None if stay else freed, later)
    release_kept(plan, [*forward.left, *reloads.back], rows, later)
    if later is None:
        return (writer.block(),)
    ready = {
        row: _dependencies_of_later_block(there, BACKWARD) for row, there in rows.ready.items()
    }
    block = writer.block()
    return block, _weights_block(stage, {**forward.ready, **ready}, follow, later, stay)


def _weights_block(
    stage: Stage,
    earlier: Mapping[int, Ready],
    follow: Callable[[RowWriter], Follower] | None,
    left: Held,
    stay: bool,
) -> Block:
    """Return the gradients of weights of a micro-batch, with the reductions of all gradients."""
    plan, writer = stage.plan, stage.books.writer()
    rows = RowWriter(plan.work, writer, stage.costs.of, earlier, {}, plan.halved)
    follower = follow(rows) if follow else None
    made = plan.backward_rows(stage.part)
    for row in made:
        if row in plan.put_off:
            rows.node(row, "backward")
        if follower:
            follower.after(row)
    freed = follower.freed if follower else {}
    here = [row for row in made if row in plan.put_off]
    hold_gradients(plan, rows, here, None if stay else freed, None)
    release_kept(plan, left, rows, None)
    return writer.block()


def _repeated(stage: Stage) -> frozenset[int]:
    """Return the repeated layers of a stage ("h.0"; else all layers) with a backward pass."""
    plan = stage.plan
    if not stage.part.backward:
        return frozenset()
    names = plan.layers.names
    some = any(is_numbered(name) for name in names)
    here = {layer for layer, _ in plan.sections(stage.part.forward)}
    with_backward = {layer for layer, _ in plan.sections(stage.part.backward)}
    return frozenset(
        layer for layer in here & with_backward if not some or is_numbered(names[layer])
    )


def recomputed_rows(stage: Stage) -> frozenset[int]:
    """Return the forward nodes of a stage that are computed again before the backward pass."""
    plan, kind = stage.plan, stage.plan.strategy.recompute
    if not kind:
        return frozenset()
    sections = plan.sections(stage.part.forward)
    layers = _repeated(stage)
    rows = [(layer, nodes) for layer, nodes in sections if layer in layers]
    if plan.work.graph.provenance.get("checkpoint") == "as far as needed":
        rows = [(layer, _needed_prefix(plan, layer, nodes)) for layer, nodes in rows]
    if kind is True:
        return frozenset(row for _, nodes in rows for row in nodes)
    again = recomputed_of(plan.work.graph, kind)
    recomputed = frozenset(row for _, nodes in rows for row in again(nodes))
    if rows and not recomputed:
        raise InputError(
            f"strategy: recompute={kind} has no effect: no layer of the graph has "
            + ("attention" if kind == "attention" else "ops of its own")
        )
    return recomputed


def _needed_prefix(plan: Plan, layer: int, nodes: list[int]) -> list[int]:
    """Return a layer's nodes up to the last one needed in backward, where PyTorch stops."""
    storages, of = plan.work.graph.storages, plan.layers.layer
    is_own = np.isin(storages.first, nodes) & (storages.last < plan.layers.optimizer)
    needed = storages.first[is_own][of[storages.last[is_own]] == layer]
    return [row for row in nodes if row <= needed.max(initial=-1)]


def offloaded(stage: Stage) -> dict[int, Held]:
    """Return what the layers of a stage keep for their backward pass in the host's memory."""
    plan = stage.plan
    if not plan.strategy.offload:
        return {}
    layers = _repeated(stage)
    left = kept_of_layers(plan, stage.part, recomputed_rows(stage))
    return {layer: held for layer, held in left.items() if layer in layers}


def move(stage: Stage, rows: RowWriter, lane: str, layer: int, held: Held) -> int:
    """Copy what a layer keeps to the host, once it is complete, or back."""
    plan = stage.plan
    size = sum(size for size, _, _ in held)
    after = row_anchors(rows.done(DEVICE), lane) if lane == OFFLOAD else []
    if lane == RELOAD:
        after = [(last_on(OFFLOAD), 0), *row_anchors(rows.done([COMPUTE]), lane)]
    name = f"{lane} {plan.layers.names[layer]}".rstrip()
    return rows.writer.add(name, lane, size / plan.strategy.offload, after)


class Reloads:
    """Writes the copies back of a backward pass, each next to that of the layer before it."""

    def __init__(
        self, stage: Stage, rows: RowWriter, away: Mapping[int, Held], layers: list[int]
    ) -> None:
        self._stage, self._rows, self._away = stage, rows, away
        self._layers = [layer for layer in layers if layer in away]
        self._number = {
            n: self._layers.index(layer) for n, layer in enumerate(layers) if layer in away
        }
        self._tasks: list[int] = []
        self.back: Held = []
        """What is there again."""

    def begin(self, number: int) -> None:
        """Wait for what the `number`-th layer needs, and start the copy for the next one."""
        if number not in self._number:
            return
        place = self._number[number]
        while len(self._tasks) <= min(place + 1, len(self._layers) - 1):
            layer = self._layers[len(self._tasks)]
            task = move(self._stage, self._rows, RELOAD, layer, self._away[layer])
            self._tasks.append(task)
            for size, _, use in self._away[layer]:
                self._rows.writer.allocate(size, task, use)
            self.back += self._away[layer]
        self._rows.wait({(RELOAD, HERE): self._tasks[place]})


def optimizer_block(stage: Stage) -> Block:
    """Return the optimizer step of a stage.

    If optimizer states are sharded, a rank updates its share of the parameters, with that share of
    the step's time and temporary memory. Where the host updates, it waits for all gradients, and
    each layer's weights are copied back while it updates the next one (Ren et al., "ZeRO-Offload",
    2021, sections 4 and 5).
    """
    plan, strategy, writer = stage.plan, stage.plan.strategy, stage.books.writer()
    share = {
        row: part / (1 if strategy.sharding == "none" else strategy.sharing(experts)[1])
        for row, part in stage.part.optimizer
        for experts in (bool(plan.of_experts[row]),)
    }
    size = plan.parameters * stage.part.share
    if plan.work.host_rates is not None and strategy.offload_optimizer:
        updated = _updates_on_host(plan, writer, share, plan.work.host_rates, size)
    else:
        updated = _updates(stage, writer, share)
    made = plan.gradients[list(stage.part.backward)]
    of_experts = float(made[plan.of_experts[list(stage.part.backward)]].sum()) / max(made.sum(), 1)
    for experts, part in ((False, 1 - of_experts), (True, of_experts)):
        role, ranks = strategy.sharing(experts)
        bytes_of = round(size * part)
        if strategy.sharding in ("optimizer", "gradients") and bytes_of and ranks > 1:
            name = "all-gather parameters"
            collective(stage, writer, name, "all_gather", bytes_of, updated, role)
    return writer.block()


def _updates(stage: Stage, writer: BlockWriter, share: Mapping[int, float]) -> Ready:
    """Write the updates of a device, by the share of each node; return when they are done."""
    plan = stage.plan
    duration = list(plan.work.duration)
    for row, part in share.items():
        duration[row] *= part
    work = replace(plan.work, duration=duration)
    rows = RowWriter(work, writer, stage.costs.of, {}, {})
    rows.wait({(lane, last_on(lane)): 0 for lane in (*DEVICE, COMMUNICATION)})
    for row in share:
        rows.node(row, "optimizer")
    hold_updates(plan, rows, share)
    return rows.done(DEVICE) or {(lane, last_on(lane)): 0 for lane in DEVICE}


def _updates_on_host(
    plan: Plan, writer: BlockWriter, share: Mapping[int, float], rates: HostRates, weights: float
) -> Ready:
    """Write the updates of the host, which passes over memory as often as the device would, and the
    copies of `weights` bytes, all of a stage's, back; return when they are there."""
    graph = plan.work.graph
    moved = {row: int(graph.bytes_read[row] + graph.bytes_written[row]) for row in share}
    total = max(sum(moved.values()), 1)
    trained = min(weights, float(plan.gradients.sum()))
    made = [(last_on(lane), 0) for lane in (*DEVICE, COMMUNICATION, OFFLOAD)]
    for row, part in share.items():
        name = f"update {graph.names[graph.name[row]]}".rstrip()
        seconds = moved[row] * part / rates.update
        task = writer.add(name, UPDATE, seconds, made, step="optimizer")
        back = trained * moved[row] / total * part
        name = name.replace("update", RELOAD, 1)
        copied = writer.add(name, RELOAD, back / rates.copy, [(HERE, task)], step="optimizer")
    return {(RELOAD, HERE): copied}
