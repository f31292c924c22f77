"""How a job is spread over workers: so many ways, in such an order, with so much held where."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.errors import InputError, unknown

__all__ = ["ALL_REDUCES", "SCHEDULES", "SHARDINGS", "Strategy"]

SCHEDULES = ("1f1b", "gpipe", "interleaved")
SHARDINGS = ("none", "optimizer", "gradients", "parameters")
"""What is divided between data-parallel ranks; ZeRO stage 0, 1, 2, 3. Each includes the ones
before it."""
ALL_REDUCES = ("auto", "ring", "tree", "hierarchical", "halving-doubling")

MIB = 1 << 20


@dataclass(frozen=True)
class Strategy:
    """A way to spread a job over `data` x `tensor` x `pipeline` workers.

    Args:
        data: replicas, each with a part of the batch.
        tensor: ranks that split every layer between them.
        pipeline: ranks that have some of the layers each.
        schedule: in which order a rank of a pipeline works on micro-batches; one of `SCHEDULES`.
        chunks: stages of each rank of a pipeline; more than one where it is interleaved.
        microbatches: forward and backward passes of a replica before each optimizer step.
        sharding: one of `SHARDINGS`.
        bucket: bytes of gradients that are reduced together.
        first_bucket: the same for the first of them.
        all_reduce: the algorithm; one of `ALL_REDUCES`. "auto" takes the cheapest.
        prefetch: layers whose parameters are gathered ahead of their use.
        overlap: whether a stage goes on while it sends. Megatron's waits until it has sent.
        recompute: whether layers are computed again before their backward pass.
        servers: parameter servers, instead of reductions between the workers.
        asynchronous: whether workers go on with what their servers have, without each other.
        iterations: that each worker goes through, where the servers are asynchronous.
        cut: where a pipeline is cut: the first layer of each stage but the first one; stages of
            about the same time where nothing is given.

    Raises:
        InputError: a value that cannot be, or has no effect beside the others.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    microbatches: int = 1
    sharding: str = "none"
    bucket: float = 25 * MIB
    first_bucket: float = 1 * MIB
    all_reduce: str = "auto"
    prefetch: int = 1
    overlap: bool = True
    recompute: bool = False
    servers: int = 0
    asynchronous: bool = False
    iterations: int = 1
    cut: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, name, least in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"strategy: {key} must be {least} or more, not {value}")
        for key, kind, name, valid in (
            ("schedule", "schedule", self.schedule, SCHEDULES),
            ("zero", "sharding", self.sharding, SHARDINGS),
            ("all_reduce", "all_reduce", self.all_reduce, ALL_REDUCES),
        ):
            if name not in valid:
                raise InputError(f"strategy: {key}: {unknown(kind, name, valid)}")
        for key in ("bucket", "first_bucket"):
            if not getattr(self, key) > 0:
                raise InputError(f"strategy: {key} must be above 0 bytes, not {getattr(self, key)}")
        _check_pipeline(self)
        _check_servers(self)
        _check_effect(self)

    @property
    def ranks(self) -> int:
        """How many workers the job has."""
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        """The text that `parse_strategy` turns into an equal strategy."""
        from paracosm.jobs.strategies.parse import format_strategy

        return format_strategy(self)


_COUNTS = (
    ("dp", "data", 1),
    ("tp", "tensor", 1),
    ("pp", "pipeline", 1),
    ("chunks", "chunks", 1),
    ("microbatches", "microbatches", 1),
    ("prefetch", "prefetch", 0),
    ("servers", "servers", 0),
    ("iterations", "iterations", 1),
)


def _check_pipeline(strategy: Strategy) -> None:
    pp, m = strategy.pipeline, strategy.microbatches
    for key, given in (
        (f"chunks={strategy.chunks}", strategy.chunks > 1),
        (f"schedule={strategy.schedule}", strategy.schedule != Strategy.schedule),
        ("cut", bool(strategy.cut)),
        ("overlap", not strategy.overlap),
    ):
        if given and pp == 1:
            raise InputError(f"strategy: {key} has no effect with pp=1: give pp=2 or more")
    if (strategy.schedule == "interleaved") != (strategy.chunks > 1):
        raise InputError(
            "strategy: schedule=interleaved needs chunks=2 or more"
            if strategy.chunks == 1
            else f"strategy: chunks={strategy.chunks} belongs to schedule=interleaved"
        )
    if strategy.schedule == "interleaved" and m % pp:
        near = max(pp, round(m / pp) * pp)
        raise InputError(
            f"strategy: interleaved needs microbatches that pp={pp} divides, not {m}: "
            f"microbatches={near} fits"
        )
    stages = pp * strategy.chunks
    if strategy.cut and len(strategy.cut) != stages - 1:
        raise InputError(
            f"strategy: cut has {len(strategy.cut)} layers, but {stages} stages are cut at "
            f"{stages - 1}"
        )


def _check_servers(strategy: Strategy) -> None:
    if not strategy.servers:
        if strategy.asynchronous:
            raise InputError("strategy: ps-async needs servers=1 or more")
        if strategy.iterations > 1:
            raise InputError("strategy: iterations has an effect with parameter servers only")
        return
    if strategy.tensor * strategy.pipeline > 1 or strategy.sharding != "none":
        raise InputError("strategy: parameter servers go with dp alone: leave out tp, pp and zero")
    if strategy.all_reduce != "auto":
        raise InputError("strategy: all_reduce has no effect with parameter servers")


def _check_effect(strategy: Strategy) -> None:
    if strategy.data == 1 and not strategy.servers:
        if strategy.sharding != "none":
            stage = SHARDINGS.index(strategy.sharding)
            raise InputError(f"strategy: zero={stage} has no effect with dp=1: give dp=2 or more")
        for key in ("bucket", "first_bucket", "all_reduce"):
            if getattr(strategy, key) != getattr(Strategy, key):
                raise InputError(f"strategy: {key} has no effect with dp=1: give dp=2 or more")
    if strategy.sharding != "parameters" and strategy.prefetch != Strategy.prefetch:
        raise InputError("strategy: prefetch has an effect with zero=3 (fsdp) only")
    if strategy.sharding == "parameters":
        for key in ("bucket", "first_bucket"):
            if getattr(strategy, key) != getattr(Strategy, key):
                raise InputError(f"strategy: {key} has no effect with zero=3: layers are units")
    if strategy.sharding != "none" and strategy.all_reduce not in ("auto", "ring", "hierarchical"):
        raise InputError(
            f"strategy: all_reduce={strategy.all_reduce} has no effect with zero: gradients are "
            "reduced and scattered, by ring or hierarchical"
        )
