"""How a job is parallelised: how many ways, in which order, and what is held where."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError, shown, unknown
from paracosm.graphs.transformer.architecture import nearest_divisor
from paracosm.graphs.transformer.share import CONTEXT_FORMS, SCALINGS, STATES, Split
from paracosm.quantities import read_bandwidth, read_size
from paracosm.units import (
    format_bandwidth,
    format_size,
    parse_number,
    whole,
)

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zero-bubble")
SHARDINGS = ("none", "optimizer", "gradients", "parameters")
"""What data-parallel ranks divide; ZeRO stage 0, 1, 2, 3. Each includes the ones before it."""
ALL_REDUCES = ("auto", "ring", "tree", "hierarchical", "halving-doubling", "nvls")

MIB = 1 << 20

MOST_SERVERS = 1000  # that exchange messages with every worker


@dataclass(frozen=True)
class Strategy:
    """A job on `data` x `context` x `tensor` x `pipeline` workers.

    Raises:
        InputError: a value that cannot be, or has no effect beside the others.
    """

    data: int = 1  # replicas, each with a part of the batch
    tensor: int = 1  # ranks that split every layer between them
    # whether they divide norms and sums as well, along the sequence
    sequence: bool = False
    # whether their gathers and sums overlap with the products that they feed or follow
    async_tp: bool = False
    context: int = 1  # ranks that share each sequence
    # how they exchange keys and values, one of `CONTEXT_FORMS`; "auto" is the software's way, or
    # the first of them
    context_form: str = "auto"
    # of all ranks of a stage, those that share the experts of each layer
    expert: int = 1
    # ranks that share each expert; as many as share layers where it is 0
    expert_tensor: int = 0
    routing: str = "uniform"  # of tokens to experts, as `paracosm.graphs.transformer.Split` has it
    capacity: float = 0.0  # times its even share that an expert takes at most; 0 for no limit
    pipeline: int = 1  # ranks that have some of the layers each
    # in which order a rank of a pipeline works on micro-batches; one of `SCHEDULES`
    schedule: str = "1f1b"
    chunks: int = 1  # stages of each rank of a pipeline; more than one where it is interleaved
    microbatches: int = 1  # forward and backward passes of a replica before each optimizer step
    # the same of each replica, where they differ: slower devices take a smaller part of the batch
    shares: tuple[int, ...] = ()
    sharding: str = "none"  # one of `SHARDINGS`
    # ranks that share what is sharded; such groups are replicas of each other. 0 for all.
    shard: int = 0
    bucket: float = 25 * MIB  # bytes of gradients that are reduced together
    first_bucket: float = 1 * MIB  # the same for the first of them
    all_reduce: str = "auto"  # the algorithm; one of `ALL_REDUCES`. "auto" takes the cheapest.
    prefetch: int = 1  # layers whose parameters are gathered ahead of their use
    # whether a stage goes on while it sends. Megatron's waits until it has sent.
    overlap: bool = True
    # what is computed again before a layer's backward pass; one of `RECOMPUTED`
    recompute: bool | str = False
    offload: float = 0.0  # bytes/s to the host's memory, where activations wait; 0: they stay
    # whether the host has the optimizer's states, and updates
    offload_optimizer: bool = False
    # whether linear maps of layers multiply numbers of one byte, or how these are scaled, one of
    # `SCALINGS`
    float8: bool | str = False
    states: str = STATES[0]  # what the optimizer keeps, one of `STATES`
    servers: int = 0  # parameter servers, instead of reductions between the workers
    # whether workers go on with what their servers have, without each other
    asynchronous: bool = False
    iterations: int = 1  # that each worker goes through, where the servers are asynchronous
    # where a pipeline is cut: the first layer of each stage but the first one; stages of about the
    # same time where nothing is given
    cut: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, least in _COUNTS.items():
            value = getattr(self, KEYS[key])
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"strategy: {key} must be {least} or more, not {value}")
        for key, kind, name, valid in (
            ("schedule", "schedule", self.schedule, SCHEDULES),
            ("zero", "sharding", self.sharding, SHARDINGS),
            ("all_reduce", "all_reduce", self.all_reduce, ALL_REDUCES),
            ("cp_form", "form", self.context_form, ("auto", *CONTEXT_FORMS)),
            ("states", "type of number", self.states, STATES),
        ):
            if name not in valid:
                raise InputError(f"strategy: {key}: {unknown(kind, name, valid)}")
        if not isinstance(self.float8, bool) and self.float8 not in SCALINGS:
            raise InputError(f"strategy: float8: {unknown('scaling', self.float8, SCALINGS)}")
        if self.recompute not in RECOMPUTED.values():
            raise InputError(f"strategy: {_unknown_recompute(self.recompute)}")
        for key in ("bucket", "first_bucket"):
            if not getattr(self, key) > 0:
                raise InputError(f"strategy: {key} must be above 0 bytes, not {getattr(self, key)}")
        for key in ("capacity", "offload"):
            if not 0 <= getattr(self, key) < math.inf:
                raise InputError(f"strategy: {key} must be above 0, not {getattr(self, key)}")
        _check_pipeline(self)
        _check_servers(self)
        _check_split(self)
        _check_shares(self)
        _check_effect(self)

    @property
    def ranks(self) -> int:
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters, and sum their gradients."""
        return self.data * self.context

    @property
    def of_an_expert(self) -> int:
        """Ranks that share each expert."""
        return self.expert_tensor or self.tensor

    @property
    def shares_experts(self) -> bool:
        """Whether experts are on other ranks than what else is of a layer."""
        return self.expert > 1 or self.of_an_expert != self.tensor

    @property
    def microbatches_of_all(self) -> int:
        """Forward and backward passes of all replicas before each optimizer step."""
        return sum(self.shares) or self.data * self.microbatches

    @property
    def needs_sizes(self) -> bool:
        """Whether only a graph made from a transformer's sizes supports it."""
        kept = self.states != Strategy.states
        shares = self.context > 1 or self.shares_experts
        return shares or bool(self.float8) or self.async_tp or kept

    def split(self, seed: int = 0) -> Split:
        """Return how ranks divide a transformer; loads of experts are drawn from the seed."""
        return Split(
            *(self.tensor, self.sequence, self.context, self.expert),
            *(self.routing, self.capacity, self.async_tp, self.scaling),
            context_form=CONTEXT_FORMS[0] if self.context_form == "auto" else self.context_form,
            states=self.states,
            expert_tensor=self.expert_tensor,
            seed=seed if self.routing.startswith(("zipf", "dirichlet")) else 0,
        )

    @property
    def scaling(self) -> str:
        """How numbers of one byte are scaled; empty where there are none."""
        return SCALINGS[0] if self.float8 is True else self.float8 or ""

    def sharing(self, experts: bool = False) -> tuple[str, int]:
        """Return in which role ranks share parameters, of experts or others, and their number."""
        if experts:
            return "expert data", self.replicas * self.tensor // (self.expert * self.of_an_expert)
        return ("shard", self.shard) if self.shard else ("data", self.replicas)

    def by_default(self) -> dict[str, str]:
        """Return the keys that are at their defaults and might be at others, with their values."""
        alone = self.replicas == 1
        without = {
            *(_WITHOUT_SERVERS if self.servers else ()),
            *(("zero", "all_reduce", "bucket", "first_bucket") if alone else ()),
            *(("sp", "async_tp") if self.tensor == 1 else ()),
            *(() if self.sequence else ("async_tp",)),
            *(("cp_form",) if self.context == 1 else ()),
            *(("routing", "capacity") if self.expert == 1 else ()),
            *(("schedule", "overlap") if self.pipeline == 1 else ()),
            *(("microbatches",) if self.shares else ()),
            *(("etp",) if self.tensor == self.expert == 1 else ()),
            *(("shard",) if self.sharding == "none" or self.shares_experts else ()),
            *(("bucket", "first_bucket") if self.sharding == "parameters" else ("prefetch",)),
            *("dp", "chunks", "shares", "servers", "iterations", "cut"),
        }
        return {
            key: _UNUSED.get(key) or _written(name, getattr(self, name))
            for key, name in KEYS.items()
            if key not in without and getattr(self, name) == getattr(Strategy, name)
        }

    def __str__(self) -> str:
        """The text that `parse_strategy` turns into an equal strategy."""
        words = [] if not self.servers else ["ps-async" if self.asynchronous else "ps"]
        if self.data > 1 or self.servers:
            words.append(f"dp={self.data}")
        for key, name in KEYS.items():
            value = getattr(self, name)
            if key not in ("dp", "cut", "shares") and value != getattr(Strategy, name):
                words.append(f"{key}={_written(name, value)}")
        if self.shares:
            words.append(f"shares={'+'.join(map(str, self.shares))}")
        if self.cut:
            words.append(f"cut={'+'.join(self.cut)}")
        return ", ".join(words) or "single"


_WITHOUT_SERVERS = ("tp", "cp", "ep", "pp", "zero", "all_reduce", "offload_optimizer")

_COUNTS = {
    **dict.fromkeys(("dp", "tp", "cp", "ep", "pp", "chunks", "microbatches"), 1),
    **dict.fromkeys(("etp", "prefetch", "servers", "shard"), 0),
    "iterations": 1,
}
"""The least that a key can be."""


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
    if strategy.schedule == "interleaved" and m % pp and not strategy.shares:
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
    if strategy.servers > MOST_SERVERS:
        raise InputError(f"strategy: at most {MOST_SERVERS:,} servers, not {strategy.servers:,}")
    ways = strategy.tensor * strategy.pipeline * strategy.context * strategy.expert
    if ways > 1 or strategy.sharding != "none":
        raise InputError("strategy: parameter servers go with dp alone: leave out tp, pp and zero")
    if strategy.all_reduce != "auto":
        raise InputError("strategy: all_reduce has no effect with parameter servers")
    if strategy.offload_optimizer:
        raise InputError("strategy: offload_optimizer has no effect where parameter servers update")


def _check_split(strategy: Strategy) -> None:
    replicas, ep, shard = strategy.replicas, strategy.expert, strategy.shard
    if strategy.sequence and strategy.tensor == 1:
        raise InputError("strategy: sp=yes has no effect with tp=1: give tp=2 or more")
    if strategy.async_tp and not strategy.sequence:
        raise InputError("strategy: async_tp has an effect with sp=yes only")
    if strategy.context == 1 and strategy.context_form != Strategy.context_form:
        raise InputError("strategy: cp_form has no effect with cp=1: give cp=2 or more")
    _check_experts(strategy)
    for key in ("routing", "capacity"):
        if ep == 1 and getattr(strategy, key) != getattr(Strategy, key):
            raise InputError(f"strategy: {key} has no effect with ep=1: give ep=2 or more")
    if strategy.capacity >= 1 and strategy.routing == "uniform":
        raise InputError(
            f"strategy: capacity={strategy.capacity:g} has no effect with routing=uniform, where "
            "no expert gets more than its share"
        )
    if shard and strategy.sharding == "none":
        raise InputError("strategy: shard has an effect with zero only: add zero=3")
    if shard and (replicas % shard or not 1 < shard < replicas):
        fits = [n for n in range(2, replicas) if replicas % n == 0]
        near = min(fits, key=lambda number: abs(number - shard), default=0)
        raise InputError(
            f"strategy: shard={shard} must divide dp x cp = {replicas}, and be less: "
            + (f"shard={near} fits" if near else "leave it out")
        )
    if shard and strategy.shares_experts:
        raise InputError("strategy: shard and ep are two ways to group replicas: choose one")


def _check_experts(strategy: Strategy) -> None:
    ep, etp, tp = strategy.expert, strategy.of_an_expert, strategy.tensor
    ranks = strategy.replicas * tp
    if ranks % (ep * etp):
        if etp == tp:
            raise InputError(
                f"strategy: ep={ep} ranks share experts out of dp x cp = {strategy.replicas}, "
                f"which {ep} does not divide: ep={nearest_divisor(strategy.replicas, ep)} fits, or "
                "etp=1 for experts that tp does not divide"
            )
        fits = nearest_divisor(ranks, ep * etp)
        raise InputError(
            f"strategy: ep x etp = {ep * etp} does not divide dp x cp x tp = {ranks} ranks: "
            f"{fits} would"
        )
    if etp != tp and tp > 1 and not strategy.sequence:
        raise InputError(
            f"strategy: etp={etp} beside tp={tp}: ranks that share layers send tokens each for a "
            "part of the sequence: add sp=yes"
        )


def _check_shares(strategy: Strategy) -> None:
    shares, pp = strategy.shares, strategy.pipeline
    if not shares:
        return
    said = f"strategy: shares={'+'.join(map(str, shares))}"
    if len(shares) != strategy.data:
        raise InputError(f"{said} are of {len(shares)} replicas, but dp={strategy.data}")
    if min(shares) < 1:
        raise InputError(f"{said}: each replica has 1 micro-batch or more")
    if len(set(shares)) == 1:
        raise InputError(f"{said} are equal: write microbatches={shares[0]}")
    if strategy.microbatches > 1:
        raise InputError(f"{said} sets it already: leave out microbatches")
    if (
        strategy.servers
        or strategy.shares_experts
        or strategy.sharding in ("gradients", "parameters")
    ):
        raise InputError(
            f"{said}: replicas that meet in every micro-batch have as many: leave out servers, ep, "
            "and zero=2 or 3"
        )
    if strategy.schedule == "interleaved" and any(share % pp for share in shares):
        raise InputError(f"{said}: interleaved needs numbers that pp={pp} divides")


def _check_effect(strategy: Strategy) -> None:
    if strategy.replicas == 1 and not strategy.servers:
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


KEYS = {
    "dp": "data",
    "tp": "tensor",
    "sp": "sequence",
    "cp": "context",
    "cp_form": "context_form",
    "ep": "expert",
    "etp": "expert_tensor",
    **{key: key for key in ("async_tp", "routing", "capacity")},
    "pp": "pipeline",
    **{key: key for key in ("schedule", "chunks", "microbatches", "shares")},
    "zero": "sharding",
    **{key: key for key in ("shard", "bucket", "first_bucket", "all_reduce", "prefetch")},
    **{key: key for key in ("overlap", "recompute", "offload")},
    **{key: key for key in ("offload_optimizer", "float8", "states")},
    **{key: key for key in ("servers", "iterations", "cut")},
}
"""Key -> field of `Strategy`."""

_UNUSED = {"etp": "as tp", "capacity": "no limit", "shard": "all", "offload": "no"}
"""Key -> what its default means."""

YES_OR_NO = ("sequence", "async_tp", "overlap", "offload_optimizer")
RECOMPUTED: dict[str, bool | str] = {
    "no": False,
    "yes": True,
    "selective": "selective",
    "except-products": "except-products",
    "elementwise": "elementwise",
    "attention": "attention",
    "latent": "latent",
}
"""What is computed again: nothing; each layer; all of it but attention and every second matrix
product, as PyTorch's selective checkpointing does in torchtitan; all of it but matrix products, as
MaxText's policy "minimal" does; neither these nor attention, as with "minimal_with_context"; what
is between the projections of attention, as Megatron's does (Korthikanti et al. 2022, section 5);
queries, keys and values of latent attention (Megatron-Core, `recompute_modules`: `core_attn` and
`mla_up_proj`)."""

NAMES: dict[str, dict[str, Any]] = {
    "single": {},
    "ddp": {},
    "zero1": {"sharding": "optimizer"},
    "zero2": {"sharding": "gradients"},
    "zero3": {"sharding": "parameters"},
    "fsdp": {"sharding": "parameters"},
    "ps": {"servers": 1},
    "ps-async": {"servers": 1, "asynchronous": True},
    "gpipe": {"schedule": "gpipe"},
    "1f1b": {"schedule": "1f1b"},
    "interleaved": {"schedule": "interleaved", "chunks": 2},
    "zero-bubble": {"schedule": "zero-bubble"},
    "recompute": {"recompute": True},
}
"""Name -> what it sets."""

ADJUSTABLE = ("chunks", "servers")
"""What a name says only where no key does."""

SPREAD = ("ddp", "zero1", "zero2", "zero3", "fsdp", "ps", "ps-async")
"""Names that spread a job over as many workers as there are."""


def parse_strategy(text: str, workers: int | None = None) -> Strategy:
    """Read a strategy: names and key=value, separated by commas.

    Args:
        text: such as "fsdp, prefetch=2", "dp=8, tp=4" or "single".
        workers: of the cluster. They determine `dp` if it is not given.

    Raises:
        InputError: a key, name or value that is unknown, cannot be read or is given twice; a
            strategy that does not divide the workers, with the nearest that does.
    """
    if not isinstance(text, str):
        raise InputError(f'strategy: write it as a text, such as "dp=8, tp=4", not {text!r}')
    if workers is not None and (number := whole(workers)) is None:
        raise InputError(f"strategy: the number of workers is whole, not {shown(workers)}")
    workers = None if workers is None else number
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError(f"strategy: empty: choose from {', '.join(NAMES)}, or write dp=8")
    if "single" in words and len(words) > 1:
        raise InputError('strategy: "single" cannot be combined')
    if len(spread := list(dict.fromkeys(word for word in words if word in SPREAD))) > 1:
        raise InputError(
            f'strategy: "{spread[0]}" and "{spread[1]}" are two ways to spread a job: choose one'
        )
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for word in sorted(words, key=lambda word: word not in NAMES):  # names first
        for name, value in _settings(word).items():
            is_adjusted = name in ADJUSTABLE and texts.get(name) in NAMES and word not in NAMES
            if name in texts and not is_adjusted:
                raise InputError(f'strategy: "{texts[name]}" and "{word}" set the same thing twice')
            values[name], texts[name] = value, word
    if {"ps", "ps-async"} & set(words) and values["servers"] == 0:
        raise InputError("strategy: ps needs servers=1 or more")
    return Strategy(**_spread(values, words, workers))


def _settings(word: str) -> dict[str, Any]:
    key, equals, value = (part.strip() for part in word.partition("="))
    if not equals:
        if word in KEYS and word not in NAMES:
            raise InputError(f"strategy: {word} needs a value: write {word}=...")
        if word not in NAMES:
            raise InputError(f"strategy: {unknown('name', word, [*NAMES, *KEYS])}")
        return NAMES[word]
    if key not in KEYS:
        raise InputError(f"strategy: {unknown('key', key, KEYS)}")
    return {KEYS[key]: _read(key, value)}


def _read(key: str, value: str) -> Any:
    name = KEYS[key]
    if name in ("schedule", "all_reduce", "routing", "context_form", "states"):
        return value
    if name in ("bucket", "first_bucket"):
        return _read_number(key, value, read_size)
    if name in ("offload", "capacity"):
        number = _read_number(key, value, read_bandwidth if name == "offload" else parse_number)
        if not number > 0:
            raise InputError(f"strategy: {key} must be above 0, not {value}")
        return number
    if name == "recompute":
        if value not in RECOMPUTED:
            raise InputError(f"strategy: {_unknown_recompute(value)}")
        return RECOMPUTED[value]
    if name == "float8" and value in SCALINGS:
        return value
    if name in (*YES_OR_NO, "float8"):
        if value not in ("yes", "no"):
            raise InputError(f'strategy: {key} is "yes" or "no", not "{value}"')
        return value == "yes"
    if name == "cut":
        return tuple(part.strip() for part in value.split("+"))
    if name == "shares":
        return tuple(_whole(key, part) for part in value.split("+"))
    if name == "sharding" and value in SHARDINGS:
        return value
    number = _whole(key, value)
    if name != "sharding":
        return number
    if number >= len(SHARDINGS):
        raise InputError(f"strategy: zero={number}: ZeRO has stages 0, 1, 2 and 3")
    return SHARDINGS[number]


def _unknown_recompute(value: object) -> str:
    return f'recompute is one of {", ".join(RECOMPUTED)}, not "{value}"'


def _whole(key: str, value: str) -> int:
    number = _read_number(key, value, parse_number)
    if number != int(min(number, 2**53)):
        raise InputError(f"strategy: {key} must be a whole number, not {value}")
    return int(number)


def _read_number(key: str, value: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(value)
    except InputError as error:
        raise InputError(f"strategy: {key}: {error}") from None


def _written(name: str, value: Any) -> str:
    if name == "sharding":
        return str(SHARDINGS.index(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in ("bucket", "first_bucket"):
        return format_size(value, exact=True)
    if name == "offload":
        return format_bandwidth(value, exact=True)
    return str(value)


def _spread(values: dict[str, Any], words: list[str], workers: int | None) -> dict[str, Any]:
    """Return the values with the remaining data-parallel ranks."""
    ways = {key: values.get(KEYS[key], 1) for key in ("tp", "cp", "pp")}
    others, dp = math.prod(ways.values()), values.get("data")
    if dp is None:
        if workers is not None and words != ["single"]:
            if others and workers % others:
                raise _does_not_divide(ways, workers)
            return {**values, "data": workers // max(others, 1)}
        if spread := [word for word in words if word in SPREAD]:
            raise InputError(
                f"strategy: {spread[0]} needs a number of workers: add --workers 8, or dp=8"
            )
        dp = 1
    if workers is not None and min(dp, *ways.values()) > 0 and dp * others != workers:
        raise does_not_fit({"dp": dp, **ways}, workers)
    return {**values, "data": dp}


def does_not_fit(ways: dict[str, int], workers: int) -> InputError:
    others = math.prod(way for key, way in ways.items() if key != "dp")
    fits = others and not workers % others
    near = f"{_nearest(workers, others)} workers would fit"
    hint = f"dp={workers // others} fits" if fits else near
    return InputError(f"strategy: {_product(ways)}, but the cluster has {workers} workers: {hint}")


def _does_not_divide(ways: dict[str, int], workers: int) -> InputError:
    total = math.prod(ways.values())
    hints = [f"{_nearest(workers, total)} workers"]
    for key, way in reversed(ways.items()):
        other = total // way
        if way > 1 and not workers % other:
            hints.insert(0, f"{key}={nearest_divisor(workers // other, way)}")
    return InputError(
        f"strategy: {_product(ways)}, which does not divide {workers} workers: "
        f"{' or '.join(hints)} fits"
    )


def _nearest(workers: int, ranks: int) -> int:
    return max((workers + ranks // 2) // ranks, 1) * ranks


def _product(ways: dict[str, int]) -> str:
    """Return "dp=3 x tp=4 = 12 ranks"."""
    there = {key: way for key, way in ways.items() if way != 1 or key == "dp"}
    total = math.prod(there.values())
    ranks = "rank" if total == 1 else "ranks"
    if len(there) == 1:
        return f"{next(iter(there))}={total}: {total} {ranks}"
    return f"{' x '.join(f'{key}={way}' for key, way in there.items())} = {total} {ranks}"
