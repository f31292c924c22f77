"""Sampling designs: which shapes of an op to time, so that other shapes can be estimated.

- *paper*: one argument at a time over a fixed number of values, the others at a base point (Huang
  et al., sections 2 and 3: 16 values). The paper does not give the spacing; here it is geometric.
- *random*: each argument drawn log-uniformly from its range, independently.
- *model-like*: each argument drawn from values common in models, and redrawn if models do not
  combine them (few channels on small feature maps).

The three have the same number of points, so that their value can be compared.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from families import FLOAT, Argument, Family, Point

from paracosm.errors import InputError, unknown
from paracosm.factory import describe_error
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments

_TRIES = 50  # draws for each point that is wanted, before a family is held to be exhausted


@dataclass(frozen=True, slots=True)
class Limits:
    """Larger ops are left out: they would use up the whole budget."""

    bytes: float = 512e6  # read and written by one call
    flops: float = 2e10  # of one call

    def __post_init__(self) -> None:
        if not (self.bytes > 0 and self.flops > 0):
            raise InputError("limits of a design: bytes and flops must be above 0")


@dataclass(frozen=True, slots=True)
class Design:
    name: str  # one of `DESIGNS`
    ops: tuple[Op, ...]  # distinct, family by family
    points: tuple[tuple[str, Point], ...]  # for each op the name of its family and its point
    left_out: Mapping[str, int]  # points of the paper's grid beyond the limits, by family


MOST_VALUES = 1000  # of an argument: some hundred thousand ops


def design(
    name: str,
    families: Sequence[Family],
    values: int = 16,
    seed: int = 0,
    limits: Limits | None = None,
    dtype: str = FLOAT,
    progress: Callable[[int, int], None] | None = None,
) -> Design:
    """Return the ops of a design, with their flops and bytes.

    Args:
        name: one of `DESIGNS`.
        families: of ops, see `families_named`.
        values: of each argument in the paper's grid; the other designs have as many points in all.
        seed: of what is drawn; each family draws from a stream of its own.
        limits: of one op.
        dtype: of floating-point tensors, such as "bfloat16".
        progress: called with families done and in all.

    Raises:
        InputError: an unknown design or dtype, values fewer than two or more than `MOST_VALUES`.
    """
    if name not in DESIGNS:
        raise unknown("design", name, DESIGNS)
    if not 2 <= values <= MOST_VALUES:
        raise InputError(
            f"a design has 2 to {MOST_VALUES:,} values of an argument, not {str(values)[:40]}"
        )
    floating = [name for name in _ITEM_SIZES if "float" in name]
    if dtype not in floating:
        raise unknown("dtype", dtype, floating)
    limits = limits or Limits()
    found: dict[Op, tuple[str, Point]] = {}
    left_out: dict[str, int] = {}
    for number, family in enumerate(families, start=1):
        ops, beyond = _within_limits(
            family, points_of(name, family, values, seed), values, limits, dtype
        )
        found.update((op, (family.name, point)) for op, point in ops)
        if beyond and name == "paper":
            left_out[family.name] = beyond
        if progress is not None:
            progress(number, len(families))
    return Design(name, tuple(found), tuple(found.values()), left_out)


def points_of(name: str, family: Family, values: int, seed: int = 0) -> Iterator[Point]:
    """Yield the points of a design: finitely many of the paper's grid, else without end."""
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(family.name.encode()),))
    return DESIGNS[name](family, values, np.random.default_rng(sequence))


def values_of(argument: Argument, values: int) -> list[int]:
    """Return `values` different integers, geometrically spaced over an argument's range as far as
    integers allow, or all that there are."""
    low, high = argument.bounds
    if high - low + 1 <= values:
        return list(range(low, high + 1))
    chosen: set[int] = set()
    for factor in np.geomspace(low, high, values):
        chosen.add(
            next(value for value in _around(round(factor), low, high) if value not in chosen)
        )
    return sorted(chosen)


def _around(middle: int, low: int, high: int) -> Iterator[int]:
    for distance in range(high - low + 1):
        for value in (middle + distance, middle - distance):
            if low <= value <= high:
                yield value


def _paper(family: Family, values: int, _: np.random.Generator) -> Iterator[Point]:
    base = {argument.name: argument.base for argument in family.arguments}
    yield base
    for argument in family.arguments:
        for value in values_of(argument, values):
            if value != argument.base:
                yield base | {argument.name: value}


def _random(family: Family, _: int, generator: np.random.Generator) -> Iterator[Point]:
    while True:
        yield {
            argument.name: _between(*argument.bounds, generator) for argument in family.arguments
        }


def _between(low: int, high: int, generator: np.random.Generator) -> int:
    """Draw an integer about log-uniformly."""
    drawn = np.exp(generator.uniform(np.log(low - 0.5), np.log(high + 0.5)))
    return int(np.clip(np.round(drawn), low, high))


def _model_like(family: Family, _: int, generator: np.random.Generator) -> Iterator[Point]:
    while True:
        point = {
            argument.name: int(generator.choice(argument.typical)) for argument in family.arguments
        }
        if family.plausible is None or family.plausible(**point):
            yield point


DESIGNS: Mapping[str, Callable[[Family, int, np.random.Generator], Iterator[Point]]] = {
    "model-like": _model_like,
    "random": _random,
    "paper": _paper,
}


def _within_limits(
    family: Family, points: Iterator[Point], values: int, limits: Limits, dtype: str
) -> tuple[list[tuple[Op, Point]], int]:
    wanted = size_of(family, values)
    found: dict[Op, Point] = {}
    seen: set[str] = set()
    beyond = 0
    for point in islice(points, _TRIES * wanted):
        op = family.at(point, dtype)
        if op.arguments in seen:
            continue
        seen.add(op.arguments)
        # What goes in is known without PyTorch, and often enough to say no.
        args, kwargs = decode_arguments(op.arguments)
        if sum(_tensor_bytes(value) for value in (*args, *kwargs.values())) > limits.bytes:
            beyond += 1
            continue
        op = counted(op)
        if op.bytes_read + op.bytes_written > limits.bytes or op.flops > limits.flops:
            beyond += 1
            continue
        found[op] = point
        if len(found) == wanted:
            break
    return list(found.items()), beyond


def size_of(family: Family, values: int) -> int:
    """Return the number of points of the paper's grid: the base point, and each line's others."""
    return 1 + sum(
        len(set(values_of(argument, values)) - {argument.base}) for argument in family.arguments
    )


def _tensor_bytes(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_tensor_bytes, value))
    if not isinstance(value, TensorArgument):
        return 0
    return int(np.prod(value.shape, dtype=np.float64)) * _ITEM_SIZES.get(value.dtype, 2)


_ITEM_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}


def counted(op: Op) -> Op:
    """Return the op with its work, as recorded by `graphs.capture` in one run on fake tensors."""
    from paracosm.graphs.capture.calls import effects_of, encode_call, flops_of, traffic_of
    from paracosm.graphs.capture.fake import fake_tensors
    from paracosm.profiling.torch_ops import instantiate, operator_of

    with fake_tensors():
        call, function = instantiate(op), operator_of(op)
        arguments = encode_call(function, call.args, call.kwargs, "cpu")
        try:
            outputs = function(*call.args, **call.kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise InputError(f"{op.name} {op.arguments[:300]}: {describe_error(error)}") from None
        effects = effects_of(function, call.args, call.kwargs, outputs)
        read, written = traffic_of(function, effects)
        flops = flops_of(function, call.args, call.kwargs, outputs, effects)
    return replace(op, arguments=arguments, flops=flops, bytes_read=read, bytes_written=written)
