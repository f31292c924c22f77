"""From an op and its recorded arguments to a call that really runs.

No op needs code of its own: its name finds the operator, its recorded arguments say every shape,
dtype and stride. Floating-point tensors get uniform numbers, integers are 0. The exception are
integers that are positions in other tensors (see `positions`): those are random, and within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from paracosm.errors import InputError
from paracosm.graphs.op import Op, TensorArgument, decode_arguments
from paracosm.profiling.positions import Bound, bounds_of_positions

__all__ = ["Call", "instantiate", "memory_of", "operator_of"]


@dataclass(frozen=True)
class Call:
    """An operator with arguments that it can be called with.

    Attributes:
        function: the operator.
        args, kwargs: its arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self) -> None:
        """Run the op once and drop what it returns."""
        self.function(*self.args, **self.kwargs)


def instantiate(op: Op, device: str = "cpu", seed: int = 0) -> Call:
    """Return the op with arguments of its recorded shapes, dtypes and strides.

    Nothing is written to the tensors of a view, which looks at no values.

    Raises:
        InputError: PyTorch has no such operator, its arguments were not recorded, or they cannot be
            made here or by anybody but another op.
    """
    operator = operator_of(op)
    if str(operator.overloadpacket) in _OPAQUE:
        raise InputError(f"{op.name}: it reads what its forward op left behind, in a form unknown")
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
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{op.name}: cannot make its arguments: {reason}") from None
    function = _on_a_copy(operator) if torch.Tag.inplace_view in operator.tags else operator
    return Call(function, tuple(made), named)


# Their last argument is a buffer that a library filled; another one may end the process.
_OPAQUE = frozenset(
    f"aten.{name}"
    for name in ("mkldnn_rnn_layer_backward", "_cudnn_rnn_backward", "miopen_rnn_backward")
)


def memory_of(op: Op) -> int:
    """Return the bytes of all tensors among the arguments of an op, as `instantiate` makes them.

    Raises:
        InputError: the arguments were not recorded, or have a dtype that nobody knows.
    """
    args, kwargs = _arguments(op)
    return sum(_bytes(value, op) for value in (*args, *kwargs.values()))


def _bytes(value: Any, op: Op) -> int:
    if isinstance(value, list):
        return sum(_bytes(each, op) for each in value)
    if not isinstance(value, TensorArgument):
        return 0
    dtype = getattr(torch, value.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"{op.name}: PyTorch {torch.__version__} has no dtype {value.dtype}")
    return _length(value) * dtype.itemsize


def _length(tensor: TensorArgument) -> int:
    """Return how many elements lie between the first and the last one of a tensor."""
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
    """Whether all that an operator returns are its arguments, seen in another way."""
    returned = [each.alias_info for each in operator._schema.returns]
    if str(operator.overloadpacket) == "aten._unsafe_view":  # its schema denies it
        return True
    return bool(returned) and all(alias and not alias.is_write for alias in returned)


def _on_a_copy(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return an operator that changes the shape of its first argument as one that can be repeated.

    It gets another tensor over the same memory each time, which costs it about a microsecond.
    """

    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return operator(tensor.detach(), *args, **kwargs)

    return call


def operator_of(op: Op) -> torch._ops.OpOverload:
    """Return the operator that an op names: "aten.convolution.default" is below `torch.ops`.

    Raises:
        InputError: PyTorch has none of that name.
    """
    found: Any = torch.ops
    try:
        for part in op.name.split("."):
            found = getattr(found, part)
    except (AttributeError, RuntimeError):
        raise InputError(f"{op.name}: PyTorch {torch.__version__} has no such op") from None
    if not isinstance(found, torch._ops.OpOverload):
        raise InputError(f'{op.name}: not an op of PyTorch, such as "aten.addmm.default"')
    return found


class _Maker:
    """Makes arguments, the same ones for the same seed."""

    def __init__(self, device: str, seed: int, filled: bool) -> None:
        self._device, self._filled = device, filled
        self._generator = torch.Generator(device).manual_seed(seed)

    def make(self, value: Any, bound: Bound = None) -> Any:
        """Return the value of an argument; `bound` is that of its integers, or theirs in a list."""
        if isinstance(value, TensorArgument):
            return self._tensor(value, bound if isinstance(bound, int) else None)
        if isinstance(value, list):
            bounds = bound if isinstance(bound, list) else [bound] * len(value)
            return [self.make(each, its) for each, its in zip(value, bounds, strict=True)]
        if isinstance(value, dict):
            return _constant(value)
        return value

    def _tensor(self, wanted: TensorArgument, bound: int | None) -> torch.Tensor:
        dtype = getattr(torch, wanted.dtype)
        if wanted.on is not None and wanted.on != self._device:
            fill = torch.ones if bound is None else torch.zeros
            return fill(wanted.shape, dtype=dtype, device=wanted.on)
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


def _constant(value: Mapping[str, Any]) -> Any:
    """Return the dtype, memory format or layout that a mapping of one name stands for."""
    ((kind, name),) = value.items()
    if kind not in ("dtype", "memory_format", "layout"):
        raise ValueError(f"unknown kind of argument {kind!r}")
    return getattr(torch, str(name).removeprefix("torch."))
