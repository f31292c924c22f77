"""From an op and its recorded arguments to a call that really runs.

No op needs code of its own: its name finds the operator, its recorded arguments say every shape,
dtype and stride. Floating-point tensors get uniform numbers. The exception is a table of integer
arguments that are positions in other tensors: those must lie within them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from paracosm.errors import InputError
from paracosm.graphs.op import Op, TensorArgument, decode_arguments

__all__ = ["Call", "instantiate"]


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

    Raises:
        InputError: PyTorch has no such operator, its arguments were not recorded, or they cannot be
            made here.
    """
    operator = _operator(op)
    if not op.arguments:
        raise InputError(f"{op.name}: its arguments were not recorded")
    args, kwargs = decode_arguments(op.arguments)
    maker = _Maker(device, seed)
    try:
        bounds = _index_bounds(operator, args, kwargs)
        made = [maker.make(value, bounds.get(at)) for at, value in enumerate(args)]
        named = {name: maker.make(value, bounds.get(name)) for name, value in kwargs.items()}
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{op.name}: cannot make its arguments: {reason}") from None
    return Call(operator, tuple(made), named)


def _operator(op: Op) -> Any:
    """Find "aten.convolution.default" below torch.ops."""
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

    def __init__(self, device: str, seed: int) -> None:
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def make(self, value: Any, bound: int | None = None) -> Any:
        if isinstance(value, TensorArgument):
            return self._tensor(value, bound)
        if isinstance(value, list):
            return [self.make(each, bound) for each in value]
        if isinstance(value, dict):
            return _constant(value)
        return value

    def _tensor(self, wanted: TensorArgument, bound: int | None) -> torch.Tensor:
        dtype = getattr(torch, wanted.dtype)
        if wanted.on is not None and wanted.on != self._device:
            return torch.ones(wanted.shape, dtype=dtype, device=wanted.on)
        if wanted.stride is None:
            return self._values(wanted.shape, dtype, bound)
        reach = [
            (size - 1) * stride for size, stride in zip(wanted.shape, wanted.stride, strict=True)
        ]
        length = 0 if 0 in wanted.shape else 1 + sum(reach)
        return self._values((length,), dtype, bound).as_strided(wanted.shape, wanted.stride)

    def _values(
        self, shape: tuple[int, ...], dtype: torch.dtype, bound: int | None
    ) -> torch.Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            if dtype.itemsize == 1:  # no generator for 8-bit floats
                return torch.ones(shape, dtype=torch.float32, device=self._device).to(dtype)
            return torch.rand(shape, dtype=dtype, device=self._device, generator=self._generator)
        if dtype == torch.bool:
            bits = torch.randint(0, 2, shape, device=self._device, generator=self._generator)
            return bits.to(dtype)
        if bound is None:
            return torch.zeros(shape, dtype=dtype, device=self._device)
        return torch.randint(
            0, max(1, bound), shape, dtype=dtype, device=self._device, generator=self._generator
        )


def _constant(value: Mapping[str, Any]) -> Any:
    """Return the dtype, memory format or layout that a mapping of one name stands for."""
    ((kind, name),) = value.items()
    if kind not in ("dtype", "memory_format", "layout"):
        raise ValueError(f"unknown kind of argument {kind!r}")
    return getattr(torch, str(name).removeprefix("torch."))


# Integer arguments that are positions: (argument, the argument they point into, its dimension; None
# for all of its elements within one image; or the name of a number that bounds them).
_POINTS_INTO: Mapping[str, tuple[str, str, int | None]] = {
    "embedding": ("indices", "weight", 0),
    "embedding_dense_backward": ("indices", "num_weights", 0),
    "nll_loss_forward": ("target", "self", 1),
    "nll_loss_backward": ("target", "self", 1),
    "nll_loss2d_forward": ("target", "self", 1),
    "nll_loss2d_backward": ("target", "self", 1),
    "max_pool2d_with_indices_backward": ("indices", "self", None),
    "index_select": ("index", "self", 0),
    "index": ("indices", "self", 0),
    "index_put": ("indices", "self", 0),
    "index_put_": ("indices", "self", 0),
    "_index_put_impl_": ("indices", "self", 0),
    "_unsafe_index": ("indices", "self", 0),
    "_unsafe_index_put": ("indices", "self", 0),
}


def _index_bounds(operator: Any, args: list[Any], kwargs: Mapping[str, Any]) -> dict[Any, int]:
    """Return the bound of integer arguments that are positions, by their place or name."""
    rule = _POINTS_INTO.get(operator._schema.name.partition("::")[2])
    if rule is None:
        return {}
    pointer, target, dimension = rule
    places = {argument.name: at for at, argument in enumerate(operator._schema.arguments)}

    def given(name: str) -> Any:
        return args[places[name]] if places[name] < len(args) else kwargs.get(name)

    into = given(target)
    if isinstance(into, int):
        bound = into
    elif dimension is None:
        bound = math.prod(into.shape[-2:])
    else:
        bound = into.shape[dimension] if len(into.shape) > dimension else into.shape[0]
    return {places[pointer]: bound, pointer: bound}
