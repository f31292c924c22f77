"""The arguments of any op as flat numbers and categories, without op-specific code."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments

_MOST_NUMBERS = 8  # of one list; of a longer one, the length and the sum


@dataclass(frozen=True, slots=True)
class Description:
    """An op, flattened.

    Paths are positions or names of arguments: "1.0" is dimension 0 of the tensor at position 1.
    """

    name: str
    arguments: str
    # flops, bytes: of one call; bytes read and written together
    flops: float
    bytes: float
    # Lengths of the dimensions of tensors; of a list of tensors its count, elements, and
    # elements of the largest
    sizes: Mapping[str, float]
    # Ranks of tensors, and numbers that are arguments. A float is among them only if it may
    # be a special case (0, 1, 2, 0.5): no learning rate changes how long an op takes.
    numbers: Mapping[str, float]
    categories: Mapping[str, str]  # dtypes, orders of strides, flags, what is None
    # Quantities that times follow more closely (`quantities`), of any sign
    derived: Mapping[str, float]

    @property
    def cell(self) -> str:
        """The text that ops share if they differ only in sizes."""
        return json.dumps([self.numbers, self.categories], sort_keys=True, separators=(",", ":"))

    @property
    def shapes(self) -> tuple[tuple[str, float], ...]:
        """All sizes with their paths, ordered."""
        return tuple(sorted(self.sizes.items()))


def describe(op: Op) -> Description:
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
                if value.entries is not None:
                    sizes[f"{path}.entries"] = float(value.entries)
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
                if abs(value) <= 3 and (2 * value).is_integer():
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
    if not op.arguments:  # not recorded
        return [], {}
    try:
        return decode_arguments(op.arguments)
    except InputError as error:
        raise InputError(f"{op.name}: {error}") from None


def _leaves(named: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that are not lists, the items of lists, and lists of tensors as one."""
    for path, value in named:
        if not isinstance(value, list):
            yield path, value
            continue
        tensors = [item for item in value if isinstance(item, TensorArgument)]
        if tensors:  # some may be None, as in x[:, index]
            yield path, tensors
        elif len(value) <= _MOST_NUMBERS:
            yield from _leaves([(f"{path}.{i}", item) for i, item in enumerate(value)])
        else:
            yield f"{path}.count", len(value)
            yield f"{path}.sum", sum(item for item in value if isinstance(item, int | float))


def _categories_of(path: str, tensor: TensorArgument) -> dict[str, str]:
    categories = {path: tensor.dtype, f"{path}.order": _order(tensor)}
    if tensor.on is not None:
        categories[f"{path}.on"] = tensor.on
    return categories


def _order(tensor: TensorArgument) -> str:
    stride = tensor.stride
    if stride is None:
        return "dense"
    axes = sorted(range(len(stride)), key=lambda axis: -stride[axis])
    repeated = " repeated" if 0 in stride else ""
    return ",".join(map(str, axes)) + repeated


def _sizes_of(path: str, tensors: Sequence[TensorArgument]) -> dict[str, float]:
    elements = [math.prod(tensor.shape) for tensor in tensors]
    sizes = {"count": len(tensors), "elements": sum(elements), "largest": max(elements)}
    return {f"{path}.{name}": float(size) for name, size in sizes.items()}


_LARGEST_VECTOR = 64  # elements; a size that it divides is as aligned as can be


def quantities(op: Op, args: Sequence[Any]) -> dict[str, float]:
    """Return quantities, by name, that predict the time of `op` better than sizes do.

    For all ops: work, bytes, and of every tensor its elements, its outer and inner dimensions and
    the alignment of the innermost one to vector registers. For convolutions: channels, kernel and
    pixels. Those that span orders of magnitude are logarithms.
    """
    flops, moved = math.log1p(op.flops), math.log1p(op.bytes_read + op.bytes_written)
    known = {
        "flops": flops,
        "read": math.log1p(op.bytes_read),
        "written": math.log1p(op.bytes_written),
        "intensity": flops - moved if op.flops else 0.0,
    }
    more = _of_convolution(op.name, args)
    if more is not None:
        return known | more
    for position, value in enumerate(args):
        if isinstance(value, TensorArgument):
            known |= _of_shape(str(position), value.shape)
        elif isinstance(value, list) and (
            tensors := [item for item in value if isinstance(item, TensorArgument)]
        ):
            sizes = _sizes_of(str(position), tensors)
            known |= {name: math.log1p(size) for name, size in sizes.items()}
    return known


def _of_shape(path: str, shape: tuple[int, ...]) -> dict[str, float]:
    if not shape:
        return {}
    return {
        f"{path}.elements": math.log1p(math.prod(shape)),
        f"{path}.first": math.log1p(shape[0]),
        f"{path}.second": math.log1p(shape[min(1, len(shape) - 1)]),
        f"{path}.last": math.log1p(shape[-1]),
        f"{path}.aligned": _alignment(shape[-1]),
    }


def _alignment(size: int) -> float:
    """Return log2 of the largest power of two up to 64 that divides `size`."""
    return math.log2(math.gcd(size, _LARGEST_VECTOR)) if size else 0.0


_CONVOLUTIONS = {"convolution": (0, 1, 3, 8), "convolution_backward": (1, 2, 4, 9)}
"""Positions of (image, weight, stride, groups) among the arguments."""


def _of_convolution(name: str, args: Sequence[Any]) -> dict[str, float] | None:
    """Return None if the arguments are not a convolution's; then the general quantities apply."""
    base = name.split(".")[1] if "." in name else name  # of "aten.convolution.default"
    places = _CONVOLUTIONS.get(base)
    if places is None or len(args) <= places[-1]:
        return None
    image, weight, stride, groups = (args[place] for place in places)
    if not (isinstance(image, TensorArgument) and isinstance(weight, TensorArgument)):
        return None
    if not (isinstance(stride, list) and isinstance(groups, int) and len(image.shape) >= 3):
        return None
    wanted = {}
    if base == "convolution_backward":  # which gradients: of the input, the weight, the bias
        if len(args) <= 10 or not isinstance(args[10], list):
            return None
        wanted = {f"wanted.{i}": float(bool(flag)) for i, flag in enumerate(args[10])}
    kernel = math.prod(weight.shape[2:])
    return {
        "batch": math.log1p(image.shape[0]),
        "channels in": math.log1p(image.shape[1]),
        "channels in a group": math.log1p(weight.shape[1]),
        "channels out": math.log1p(weight.shape[0]),
        "pixels": math.log1p(math.prod(image.shape[2:])),
        "kernel": math.log1p(kernel),
        "pointwise": float(kernel == 1),
        "stride": math.log1p(math.prod(stride)),
        "groups": math.log1p(groups),
        "grouped": float(groups > 1),
        "channels in aligned": _alignment(image.shape[1]),
        "channels out aligned": _alignment(weight.shape[0]),
        **wanted,
    }


_TOO_ALIKE = 0.9995  # correlation at which the second column says nothing new


@dataclass(frozen=True, eq=False)
class Layout:
    # "raw": the arguments as they are, sizes and numbers on a logarithmic scale; "derived":
    # `quantities` and the numbers
    view: str
    # Paths of the numeric columns; where an op has no such path, the column holds 0
    numbers: tuple[str, ...]
    # (path, value) of the columns that are 1 where the op has this value, else 0
    categories: tuple[tuple[str, str], ...]
    # mean, scale: of each column among the samples; the matrix is standardised by them
    mean: Floats
    scale: Floats

    def matrix(self, ops: Sequence[Description]) -> Floats:
        """Return the standardised columns of `ops`, of shape (ops, columns)."""
        rows = np.zeros((len(ops), len(self.mean)))
        for row, op in zip(rows, ops, strict=True):
            values = _numbers_of(op, self.view)
            here = [values.get(path, 0.0) for path in self.numbers]
            here += [float(op.categories.get(path) == value) for path, value in self.categories]
            row[:] = here
        return (rows - self.mean) / self.scale


def layout_of(ops: Sequence[Description], view: str) -> Layout:
    """Return the layout of what varies among `ops`, without columns equivalent to earlier ones."""
    numbers = tuple(sorted({path for op in ops for path in _numbers_of(op, view)}))
    categories = tuple(sorted({pair for op in ops for pair in op.categories.items()}))
    count = len(numbers) + len(categories)
    everything = Layout(view, numbers, categories, np.zeros(count), np.ones(count))
    matrix = everything.matrix(ops)
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0)
    kept = _different((matrix - mean) / np.where(scale > 1e-9, scale, np.inf))
    names = len(numbers)
    return Layout(
        view=view,
        numbers=tuple(numbers[i] for i in kept if i < names),
        categories=tuple(categories[i - names] for i in kept if i >= names),
        mean=mean[kept],
        scale=scale[kept],
    )


@dataclass(frozen=True, eq=False)
class Seen:
    categories: tuple[tuple[str, str], ...]  # every (path, value) among them
    always: tuple[str, ...]  # paths of the categories that each of them has
    numbers: tuple[str, ...]  # paths of the numbers of the "derived" view
    low: Floats
    high: Floats

    def outside(self, op: Description) -> float:
        """Return how far `op` lies outside: the largest distance of a number from its range (for
        most the logarithm of a ratio); infinite if a category is new, or missing because the op's
        arguments were recorded incompletely."""
        if not set(op.categories.items()) <= set(self.categories):
            return math.inf
        if not set(self.always) <= op.categories.keys():
            return math.inf
        values = _numbers_of(op, "derived")
        if not self.numbers:
            return 0.0
        here = np.array([values.get(path, 0.0) for path in self.numbers])
        return float(np.maximum(self.low - here, here - self.high).max(initial=0.0))


def seen_in(ops: Sequence[Description]) -> Seen:
    values = [_numbers_of(op, "derived") for op in ops]
    numbers = sorted({path for value in values for path in value})
    table = np.array([[value.get(path, 0.0) for path in numbers] for value in values])
    return Seen(
        categories=tuple(sorted({pair for op in ops for pair in op.categories.items()})),
        always=tuple(sorted(set.intersection(*(set(op.categories) for op in ops)))),
        numbers=tuple(numbers),
        low=table.min(axis=0),
        high=table.max(axis=0),
    )


def _numbers_of(op: Description, view: str) -> dict[str, float]:
    numbers = {path: _logarithm(value) for path, value in op.numbers.items()}
    if view == "derived":
        return numbers | dict(op.derived)
    return numbers | {path: _logarithm(value) for path, value in op.sizes.items()}


def _logarithm(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


def _different(columns: Floats) -> list[int]:
    """Return the indices of columns that vary (standardised) and differ from all earlier ones."""
    kept: list[int] = []
    for index in np.flatnonzero(columns.any(axis=0)):
        alike = columns[:, kept].T @ columns[:, index] / len(columns)
        if not np.any(np.abs(alike) > _TOO_ALIKE):
            kept.append(int(index))
    return kept
