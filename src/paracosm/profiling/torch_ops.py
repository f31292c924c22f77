"""PyTorch ops as calls that really run, with the memory that they need.

No op needs code of its own: its name identifies the operator, its recorded arguments every shape,
dtype and stride. Floating-point tensors get uniform numbers, integers are 0, except for integers
that are positions in other tensors (see `bounds_of_positions`): those are random, within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments
from paracosm.profiling.environment import Clock, last_level_cache


@dataclass(frozen=True)
class Call:
    """An operator with arguments; each call runs it once and drops its result."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self) -> None:
        self.function(*self.args, **self.kwargs)

    def result(self) -> Any:
        return self.function(*self.args, **self.kwargs)


def instantiate(op: Op, device: str = "cpu", seed: int = 0) -> Call:
    """Return the op with arguments of its recorded shapes, dtypes and strides."""
    operator = operator_of(op)
    args, kwargs = _arguments(op)
    maker = _Maker(device, seed, filled=not _is_view(operator))
    try:
        bounds = bounds_of_positions(operator._schema, args, kwargs)
        places = [argument.name for argument in operator._schema.arguments]
        made = [
            maker.make(value, bounds.get(name))
            for value, name in zip(args, places[: len(args)], strict=True)
        ]
        named = {name: maker.make(value, bounds.get(name)) for name, value in kwargs.items()}
        if (forward := FORWARD.get(str(operator.overloadpacket))) is not None:
            made = forward.left_behind(dict(zip(places, made, strict=False)))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{op.name}: cannot make its arguments: {reason}") from None
    function = _on_alias(operator) if torch.Tag.inplace_view in operator.tags else operator
    return Call(function, tuple(made), named)


@dataclass(frozen=True)
class Forward:
    """The forward op of a backward one that reads a buffer which only the forward op can fill.

    Another buffer gives wrong numbers at best, and crashes the process at worst.
    """

    name: str
    returns: tuple[str | None, ...]  # arguments of the backward op that are what it returned
    # Its arguments under their names in the backward op, where they differ; None for none
    renamed: Mapping[str, str | None]

    def left_behind(self, made: Mapping[str, Any]) -> list[Any]:
        """Run it, and return the backward op's arguments with its results among them."""
        operator = getattr(torch.ops.aten, self.name).default
        names = [argument.name for argument in operator._schema.arguments]
        sources = [self.renamed.get(name, name) for name in names]
        with torch.enable_grad():  # else it keeps nothing for a backward pass
            returned = operator(*(None if source is None else made[source] for source in sources))
        values = dict(zip(self.returns, returned, strict=True))
        return list({**made, **{n: t for n, t in values.items() if n is not None}}.values())


_SHIFTED = {f"weight{i}": f"weight{i + 1}" for i in range(4)}
FORWARD: Mapping[str, Forward] = {
    "aten.mkldnn_rnn_layer_backward": Forward(
        "mkldnn_rnn_layer", ("output", "hy_", "cy_", "workspace"), {**_SHIFTED, "cx_": "cx_tmp"}
    ),
    **{
        f"aten.{name}_backward": Forward(
            name, ("output", None, None, "reserve", "weight_buf"), {"weight_buf": None}
        )
        for name in ("_cudnn_rnn", "miopen_rnn")
    },
}


def memory_of(op: Op) -> int:
    """Return the bytes of all tensors among the arguments of an op, as `instantiate` makes them."""
    args, kwargs = _arguments(op)
    return sum(_bytes(value, op) for value in (*args, *kwargs.values()))


def _bytes(value: Any, op: Op) -> int:
    if isinstance(value, list):
        return sum(_bytes(item, op) for item in value)
    if not isinstance(value, TensorArgument):
        return 0
    dtype = getattr(torch, value.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"{op.name}: PyTorch {torch.__version__} has no dtype {value.dtype}")
    if value.entries is not None:
        return value.entries * (8 + math.prod(value.shape[1:]) * dtype.itemsize)
    return _length(value) * dtype.itemsize


def _length(tensor: TensorArgument) -> int:
    if 0 in tensor.shape:
        return 0
    if tensor.stride is None:
        return math.prod(tensor.shape)
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))


def _arguments(op: Op) -> tuple[list[Any], dict[str, Any]]:
    if not op.arguments:
        raise InputError(f"{op.name}: its arguments were not recorded")
    return decode_arguments(op.arguments)


def _is_view(operator: torch._ops.OpOverload) -> bool:
    returned = [returned_value.alias_info for returned_value in operator._schema.returns]
    if str(operator.overloadpacket) == "aten._unsafe_view":  # its schema denies it
        return True
    return bool(returned) and all(alias and not alias.is_write for alias in returned)


def _on_alias(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return a repeatable form of an in-place reshape, on a new alias of the tensor each time."""

    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return operator(tensor.detach(), *args, **kwargs)

    return call


def operator_of(op: Op) -> torch._ops.OpOverload:
    """Return the operator that an op names: "aten.convolution.default" is below `torch.ops`."""
    operator: Any = torch.ops
    try:
        for part in op.name.split("."):
            operator = getattr(operator, part)
    except (AttributeError, RuntimeError):
        raise InputError(f"{op.name}: PyTorch {torch.__version__} has no such op") from None
    if not isinstance(operator, torch._ops.OpOverload):
        raise InputError(f'{op.name}: not an op of PyTorch, such as "aten.addmm.default"')
    return operator


class _Maker:
    """Makes arguments, the same ones for the same seed."""

    def __init__(self, device: str, seed: int, filled: bool) -> None:
        self._device, self._filled = device, filled
        self._generator = torch.Generator(device).manual_seed(seed % 2**63)

    def make(self, value: Any, bound: Bound = None) -> Any:
        """Return the value of an argument; `bound` limits its integers, or those in a list."""
        if isinstance(value, TensorArgument):
            if isinstance(bound, Groups) and self._filled:
                return bound.tensor(value, self._device)
            return self._tensor(value, bound if isinstance(bound, int) else None)
        if isinstance(value, list):
            bounds = bound if isinstance(bound, list) else [bound] * len(value)
            return [self.make(item, its) for item, its in zip(value, bounds, strict=True)]
        if isinstance(value, dict):  # of one name: a dtype, a memory format or a layout
            ((kind, name),) = value.items()
            if kind not in ("dtype", "memory_format", "layout"):
                raise ValueError(f"unknown kind of argument {kind!r}")
            return getattr(torch, str(name).removeprefix("torch."))
        return value

    def _tensor(self, wanted: TensorArgument, bound: int | None) -> torch.Tensor:
        dtype = getattr(torch, wanted.dtype)
        if wanted.on is not None and wanted.on != self._device:
            fill = torch.ones if bound is None else torch.zeros
            return fill(wanted.shape, dtype=dtype, device=wanted.on)
        if wanted.entries is not None:
            rows = self._values((1, wanted.entries), torch.int64, wanted.shape[0])
            values = self._values((wanted.entries, *wanted.shape[1:]), dtype, None)
            return torch.sparse_coo_tensor(rows, values, wanted.shape, check_invariants=False)
        if wanted.stride is None:
            return self._values(wanted.shape, dtype, bound)
        flat = self._values((_length(wanted),), dtype, bound)
        return flat.as_strided(wanted.shape, wanted.stride)

    def _values(
        self, shape: tuple[int, ...], dtype: torch.dtype, bound: int | None
    ) -> torch.Tensor:
        if not self._filled:
            return torch.empty(shape, dtype=dtype, device=self._device)
        if dtype.is_floating_point or dtype.is_complex:
            if dtype.itemsize == 1:  # no generator for 8-bit floats
                return torch.ones(shape, dtype=torch.float32, device=self._device).to(dtype)
            return torch.rand(shape, dtype=dtype, device=self._device, generator=self._generator)
        if dtype == torch.bool:
            bits = torch.randint(0, 2, shape, device=self._device, generator=self._generator)
            return bits.to(dtype)
        if bound is None:
            return torch.zeros(shape, dtype=dtype, device=self._device)
        highest = min(bound, torch.iinfo(dtype).max)
        return torch.randint(
            0, max(1, highest), shape, dtype=dtype, device=self._device, generator=self._generator
        )


@dataclass(frozen=True)
class Groups:
    """Where groups of a dimension begin, or end, the last one with it; they are about equally
    large. The group of each of n entries is such a beginning, of n groups of the groups."""

    size: int  # of the dimension
    ends: bool = False

    def tensor(self, wanted: TensorArgument, device: str) -> torch.Tensor:
        (groups,) = wanted.shape
        numbers = torch.arange(groups, device=device) + int(self.ends)
        return (self.size * numbers // max(groups, 1)).to(getattr(torch, wanted.dtype))


Bound: TypeAlias = int | list[int | None] | Groups | None
"""One more than the greatest position; of a list of tensors one for each; groups; None for no
positions."""

_Given: TypeAlias = Callable[[str], Any]
_Rule: TypeAlias = Callable[[_Given], Bound]


def bounds_of_positions(
    schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Bound]:
    """Return the bounds of those arguments of a call that are positions, by their names."""
    rules = _POSITIONS.get(schema.name.partition("::")[2], ())
    names = [argument.name for argument in schema.arguments]
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    return {pointer: rule(arguments.get) for pointer, rule in rules if pointer in arguments}


def _size(tensor: TensorArgument, dimension: int) -> int:
    """Return the size of a dimension; a tensor without any holds one element."""
    return tensor.shape[dimension] if tensor.shape else 1


def _classes(arguments: _Given) -> int:
    shape = arguments("self").shape
    return int(shape[1] if len(shape) > 1 else shape[0])


def _each_dimension(arguments: _Given) -> list[int | None]:
    """Return the sizes that the tensors of x[i, :, j] index into; a mask has no positions."""
    bounds: list[int | None] = []
    dimension = 0
    for index in arguments("indices"):
        mask = isinstance(index, TensorArgument) and index.dtype in ("bool", "uint8")
        bounds.append(None if mask or index is None else arguments("self").shape[dimension])
        dimension += len(index.shape) if mask else 1
    return bounds


def _grouped(arguments: _Given) -> Groups:
    """Groups are rows of the first matrix, columns of the second, or what both are summed over."""
    first, second = arguments("self").shape, arguments("mat2").shape
    size = second[1] if len(first) == 3 else first[0] if len(second) == 3 else first[1]
    return Groups(size, ends=True)


def _image(dimensions: int) -> tuple[tuple[str, _Rule]]:
    return (("indices", lambda given: math.prod(given("self").shape[-dimensions:])),)


_IN_TABLE: tuple[str, _Rule] = ("indices", lambda given: _size(given("weight"), 0))
_IN_GRADIENT: tuple[str, _Rule] = ("indices", lambda given: int(given("num_weights")))
_OF_BAGS: tuple[tuple[str, _Rule], ...] = (
    ("offsets", lambda given: Groups(_size(given("indices"), 0))),
    ("offset2bag", lambda given: Groups(_size(given("bag_size"), 0))),
)

_POSITIONS: Mapping[str, tuple[tuple[str, _Rule], ...]] = {
    "embedding": (_IN_TABLE,),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), (_IN_TABLE, *_OF_BAGS)),
    **dict.fromkeys(
        ("_embedding_bag_backward", "_embedding_bag_dense_backward"), (_IN_GRADIENT, *_OF_BAGS)
    ),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), (("offs", _grouped),)),
    "embedding_dense_backward": (_IN_GRADIENT,),
    **dict.fromkeys(
        ("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"),
        (("target", _classes),),
    ),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward"), _image(2)
    ),
    **dict.fromkeys(
        ("max_pool3d_with_indices_backward", "adaptive_max_pool3d_backward"), _image(3)
    ),
    **dict.fromkeys(
        (
            *("index_select", "gather", "index_add", "index_add_", "index_copy", "index_copy_"),
            *("index_fill", "index_fill_", "index_reduce", "index_reduce_"),
            *("scatter", "scatter_", "scatter_add", "scatter_add_"),
            *("scatter_reduce", "scatter_reduce_"),
        ),
        (("index", lambda given: _size(given("self"), given("dim"))),),
    ),
    **dict.fromkeys(
        ("take", "put", "put_"), (("index", lambda given: math.prod(given("self").shape)),)
    ),
    **dict.fromkeys(
        (
            *("index", "index_put", "index_put_", "_index_put_impl_"),
            *("_unsafe_index", "_unsafe_index_put"),
        ),
        (("indices", _each_dimension),),
    ),
}
"""By the operator's name: which arguments hold positions, and what bounds them.

A position beyond its tensor is an error on a CPU, ends all work on a GPU, and is memory of others
where an op does not look (`_unsafe_index`). What this table lacks gets the position 0.
"""

FLUSH = 1.5  # of the last-level cache is streamed through it
ROW = 1e-3  # seconds that a row of warm calls takes, at least


class Bench:
    """Times ops on one device, one visit at a time.

    *Warm* is how Huang et al. profile (section 3): the same op many times in a row, on the same
    data. In a real iteration hundreds of megabytes pass through the cache between two visits to a
    tensor, so an op finds its data in memory. *Cold* reproduces this: other data is streamed
    through the cache, the op runs once on a second set of arguments, so that its code is warm, and
    is then timed on the first. What the second call made is held meanwhile, so that the allocator
    has no memory for the result that is still in the cache.
    """

    def __init__(self, device: str, clock: Clock) -> None:
        self._device, self._clock = device, clock
        length = int(FLUSH * last_level_cache(device)) // 4
        self._stream = torch.ones(length, device=device)

    def visit(self, op: Op, caches: Sequence[str], seed: int) -> dict[str, float]:
        """Return the seconds of one call for each of `caches`."""
        clock = self._clock
        first = instantiate(op, self._device, seed)
        second = instantiate(op, self._device, seed + 1)
        held = second.result()
        first()  # memory for two results is there from now on
        clock.wait()
        del held
        seconds: dict[str, float] = {}
        if "cold" in caches:
            self._stream.add_(1.0)
            results: list[Any] = []
            clock.seconds(lambda: results.append(second.result()))  # the clock's code is warm, too
            clock.head_start()
            seconds["cold"] = clock.seconds(first)
            results.clear()
        if "warm" in caches:
            once = max(clock.seconds(first), 1e-7)
            times = max(1, min(1000, int(ROW / once)))
            seconds["warm"] = clock.seconds(first, times) / times
        return seconds
