"""Integer arguments that are positions in other tensors, and how far those reach.

A position beyond its tensor is an error on a CPU, ends all work on a GPU, and is memory of others
where an op does not look (`_unsafe_index`). What this table lacks gets the position 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from paracosm.graphs.op import TensorArgument

__all__ = ["Bound", "bounds_of_positions"]

Bound: TypeAlias = int | list[int | None] | None
"""One more than the greatest position; of a list of tensors one for each; None for no positions."""

_Given: TypeAlias = Callable[[str], Any]
_Rule: TypeAlias = Callable[[_Given], Bound]


def bounds_of_positions(
    schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Bound]:
    """Return the bounds of those arguments of a call that are positions, by their names.

    Args:
        schema: of the operator, as PyTorch has it.
        args, kwargs: its arguments, with `TensorArgument` for tensors.
    """
    found = _POSITIONS.get(schema.name.partition("::")[2])
    if found is None:
        return {}
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    pointer, rule = found
    return {pointer: rule(given.get)}


def _size(tensor: TensorArgument, dimension: int) -> int:
    """Return the size of a dimension; a tensor without any holds one element."""
    return tensor.shape[dimension] if tensor.shape else 1


def _rows(of: str) -> _Rule:
    return lambda given: _size(given(of), 0)


def _number(called: str) -> _Rule:
    return lambda given: int(given(called))


def _elements(of: str) -> _Rule:
    return lambda given: math.prod(given(of).shape)


def _image(of: str, dimensions: int) -> _Rule:
    return lambda given: math.prod(given(of).shape[-dimensions:])


def _along_dim(given: _Given) -> int:
    return _size(given("self"), given("dim"))


def _classes(given: _Given) -> int:
    shape = given("self").shape
    return int(shape[1] if len(shape) > 1 else shape[0])


def _each_dimension(given: _Given) -> list[int | None]:
    """Return the sizes that the tensors of x[i, :, j] point into; a mask has no positions."""
    bounds: list[int | None] = []
    dimension = 0
    for index in given("indices"):
        mask = isinstance(index, TensorArgument) and index.dtype in ("bool", "uint8")
        bounds.append(None if mask or index is None else given("self").shape[dimension])
        dimension += len(index.shape) if mask else 1
    return bounds


_POSITIONS: Mapping[str, tuple[str, _Rule]] = {
    "embedding": ("indices", _rows("weight")),
    "embedding_dense_backward": ("indices", _number("num_weights")),
    "_embedding_bag": ("indices", _rows("weight")),
    "_embedding_bag_forward_only": ("indices", _rows("weight")),
    **dict.fromkeys(
        ("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"),
        ("target", _classes),
    ),
    "max_pool2d_with_indices_backward": ("indices", _image("self", 2)),
    "max_pool3d_with_indices_backward": ("indices", _image("self", 3)),
    "adaptive_max_pool2d_backward": ("indices", _image("self", 2)),
    "adaptive_max_pool3d_backward": ("indices", _image("self", 3)),
    **dict.fromkeys(
        (
            *("index_select", "gather", "index_add", "index_add_", "index_copy", "index_copy_"),
            *("index_fill", "index_fill_", "index_reduce", "index_reduce_"),
            *("scatter", "scatter_", "scatter_add", "scatter_add_"),
            *("scatter_reduce", "scatter_reduce_"),
        ),
        ("index", _along_dim),
    ),
    **dict.fromkeys(("take", "put", "put_"), ("index", _elements("self"))),
    **dict.fromkeys(
        (
            *("index", "index_put", "index_put_", "_index_put_impl_"),
            *("_unsafe_index", "_unsafe_index_put"),
        ),
        ("indices", _each_dimension),
    ),
}
"""By the operator's name: which argument holds positions, and what bounds them."""
