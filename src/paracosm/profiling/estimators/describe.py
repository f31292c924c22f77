"""The arguments of any op as flat numbers and categories, without code for the op."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.op import Op, TensorArgument, decode_arguments
from paracosm.profiling.estimators.quantities import quantities

__all__ = ["Description", "describe"]

_MOST_NUMBERS = 8  # of one list; of a longer one, the length and the sum


@dataclass(frozen=True, slots=True)
class Description:
    """An op, flattened.

    Paths are positions or names of arguments: "1.0" is dimension 0 of the tensor at position 1.

    Attributes:
        name, arguments: the op's own.
        flops, bytes: of one call; bytes read and written together.
        sizes: lengths of the dimensions of tensors; of a list of tensors its count, elements, and
            elements of the largest.
        numbers: ranks of tensors, and numbers that are arguments. A float is among them only if
            it may be a special case (0, 1, 2, 0.5): no learning rate changes how long an op takes.
        categories: dtypes, orders of strides, flags, what is None.
        derived: quantities that times follow more closely (`quantities`), of any sign.
    """

    name: str
    arguments: str
    flops: float
    bytes: float
    sizes: Mapping[str, float]
    numbers: Mapping[str, float]
    categories: Mapping[str, str]
    derived: Mapping[str, float]

    @property
    def cell(self) -> str:
        """Text that ops share which differ in sizes alone."""
        return json.dumps([self.numbers, self.categories], sort_keys=True, separators=(",", ":"))

    @property
    def shapes(self) -> tuple[tuple[str, float], ...]:
        """All sizes with their paths, ordered."""
        return tuple(sorted(self.sizes.items()))


def describe(op: Op) -> Description:
    """Return the description of `op`.

    Raises:
        InputError: its arguments are not of the form that `graphs.op` describes.
    """
    args, kwargs = _arguments(op)
    sizes: dict[str, float] = {}
    numbers: dict[str, float] = {}
    categories: dict[str, str] = {}
    for path, value in _leaves([*((str(i), arg) for i, arg in enumerate(args)), *kwargs.items()]):
        match value:
            case TensorArgument():
                sizes |= {f"{path}.{i}": float(size) for i, size in enumerate(value.shape)}
                numbers[f"{path}.rank"] = float(len(value.shape))
                categories |= _categories_of(path, value)
            case [*tensors] if tensors and isinstance(tensors[0], TensorArgument):
                sizes |= _sizes_of(path, tensors)
                for tensor in tensors:
                    categories |= _categories_of(path, tensor)
            case bool() | str() | None:
                categories[path] = str(value).lower()
            case float() if not math.isfinite(value):
                categories[path] = str(value)
            case int():
                numbers[path] = float(value)
            case float():
                if _is_special(value):
                    numbers[path] = value
            case _:  # a dtype, a layout
                categories[path] = json.dumps(value, sort_keys=True)
    return Description(
        name=op.name,
        arguments=op.arguments,
        flops=float(op.flops),
        bytes=float(op.bytes_read + op.bytes_written),
        sizes=sizes,
        numbers=numbers,
        categories=categories,
        derived=quantities(op, args),
    )


def _arguments(op: Op) -> tuple[list[Any], dict[str, Any]]:
    if not op.arguments:  # nobody recorded them
        return [], {}
    try:
        return decode_arguments(op.arguments)
    except InputError as error:
        raise InputError(f"{op.name}: {error}") from None


def _leaves(named: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield every argument that is no list, those inside lists, and lists of tensors as one."""
    for path, value in named:
        if not isinstance(value, list):
            yield path, value
            continue
        tensors = [each for each in value if isinstance(each, TensorArgument)]
        if tensors:  # some may be None, as in x[:, index]
            yield path, tensors
        elif len(value) <= _MOST_NUMBERS:
            yield from _leaves([(f"{path}.{i}", each) for i, each in enumerate(value)])
        else:
            yield f"{path}.count", len(value)
            yield f"{path}.sum", sum(each for each in value if isinstance(each, int | float))


def _is_special(value: float) -> bool:
    return abs(value) <= 3 and (2 * value).is_integer()


def _categories_of(path: str, tensor: TensorArgument) -> dict[str, str]:
    found = {path: tensor.dtype, f"{path}.order": _order(tensor)}
    if tensor.on is not None:
        found[f"{path}.on"] = tensor.on
    return found


def _order(tensor: TensorArgument) -> str:
    """Return how the elements lie in memory, whatever their number."""
    stride = tensor.stride
    if stride is None:
        return "dense"
    axes = sorted(range(len(stride)), key=lambda axis: -stride[axis])
    repeated = " repeated" if 0 in stride else ""
    return ",".join(map(str, axes)) + repeated


def _sizes_of(path: str, tensors: Sequence[TensorArgument]) -> dict[str, float]:
    elements = [math.prod(tensor.shape) for tensor in tensors]
    return {
        f"{path}.count": float(len(tensors)),
        f"{path}.elements": float(sum(elements)),
        f"{path}.largest": float(max(elements)),
    }
