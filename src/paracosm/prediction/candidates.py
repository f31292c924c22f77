"""The strategies by which so many workers can divide a transformer and its examples."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from paracosm.cluster.link import Hierarchical, Topology
from paracosm.errors import InputError
from paracosm.graphs.transformer.architecture import Transformer
from paracosm.jobs.strategies.strategy import Strategy

APART = 0.1  # share by which a strategy's batch may differ from the requested one
MOST_OF_A_SEQUENCE = 8  # ranks that share one
MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Candidate:
    """A strategy, with the examples of one of its micro-batches."""

    strategy: Strategy
    micro_batch: int

    @property
    def examples(self) -> int:
        """Of an iteration of all workers."""
        return self.micro_batch * self.strategy.microbatches_of_all


def candidates(
    model: Transformer,
    workers: int,
    machine: int,  # workers in one machine
    examples: int,
    form: str = "auto",  # in which context ranks exchange keys and values
) -> Iterator[Candidate]:
    """Yield the strategies whose divisions are exact, without recomputation.

    Ranks that share a layer are in one machine, divide the heads, and divide norms along the
    sequence; stages have a layer or more; context ranks have two pieces of a sequence each, one
    sequence at a time, and are no more than `MOST_OF_A_SEQUENCE`; each replica has at least one
    micro-batch; shards are all replicas, or those of one machine.
    """
    for tensor in _divisors(machine, workers):
        if model.heads % tensor:
            continue
        for pipeline in _divisors(workers // tensor, model.layers):
            for context in _divisors(workers // tensor // pipeline, MOST_OF_A_SEQUENCE):
                if context > 1 and model.sequence % (2 * context):
                    continue
                if form == "ulysses" and model.heads // tensor % context:
                    continue
                shape = Strategy(
                    data=workers // tensor // pipeline // context,
                    tensor=tensor,
                    sequence=tensor > 1,
                    context=context,
                    context_form=form if context > 1 else "auto",
                    pipeline=pipeline,
                )
                yield from _with_micro_batches(model, shape, machine // tensor, examples)


def machine_of(topology: Topology, workers: int) -> int:
    """Return how many workers are in one machine; all where nothing else joins them."""
    return topology.group_size if isinstance(topology, Hierarchical) else workers


def _with_micro_batches(
    model: Transformer, shape: Strategy, near: int, examples: int
) -> Iterator[Candidate]:
    """Yield the micro-batches, experts and shards of ranks of a shape."""
    for micro_batch in MICRO_BATCHES if shape.context == 1 else (1,):
        count = max(round(examples / (shape.data * micro_batch)), 1)
        if abs(count * shape.data * micro_batch - examples) > APART * examples:
            continue
        for expert in _divisors(model.experts or 1, shape.replicas):
            if shape.replicas % expert:
                continue
            for sharding, shard in _shardings(shape.replicas, near if expert == 1 else 0):
                strategy = replace(
                    shape, microbatches=count, expert=expert, sharding=sharding, shard=shard
                )
                yield Candidate(strategy, micro_batch)


def _shardings(replicas: int, near: int) -> list[tuple[str, int]]:
    if replicas == 1:
        return [("none", 0)]
    shardings = [("none", 0), ("optimizer", 0), ("gradients", 0), ("parameters", 0)]
    if 1 < near < replicas and replicas % near == 0:
        shardings.append(("parameters", near))
    return shardings


def _divisors(number: int, most: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


def check_divisible(model: Transformer, workers: int, machine: int, examples: int) -> None:
    """Refuse a number of workers that no strategy can use; arguments as for `candidates`."""
    if next(candidates(model, workers, machine, examples), None) is not None:
        return
    heads = math.gcd(model.heads, machine)
    most = examples * heads * model.layers * MOST_OF_A_SEQUENCE
    ways = f"{examples:,} examples x tp={heads} x cp={MOST_OF_A_SEQUENCE} x pp={model.layers}"
    if workers > most:
        raise InputError(f"{workers:,} workers are more than {ways} can use: {most:,} at most")
    raise InputError(
        f"{workers:,} workers cannot share {examples:,} examples evenly (within {APART:.0%}): use "
        "a power of two, or another batch"
    )
