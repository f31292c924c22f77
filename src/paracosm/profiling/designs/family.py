"""A family of ops: one op of PyTorch, the numbers that its arguments follow from, their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments

Point = Mapping[str, int]
"""A value for every argument of a family."""

Call = tuple[list[Any], dict[str, Any]]
"""Positional and named arguments of an op, with `TensorArgument` for tensors."""

FLOAT = "float32"
"""Stands for the design's dtype in the tables of families."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One number that an op's arguments follow from."""

    name: str  # "channels"
    typical: tuple[int, ...]  # values that models have, repeated where they are frequent
    base: int  # where it stays while other arguments vary
    # low, high: the range; that of `typical` unless given
    low: int = 0
    high: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        return self.low or min(self.typical), self.high or max(self.typical)

    def __post_init__(self) -> None:
        low, high = self.bounds
        assert all(low <= value <= high for value in (*self.typical, self.base)), self


@dataclass(frozen=True, slots=True)
class Family:
    """One op, and how a point becomes its arguments."""

    op: str  # as a graph names it, "aten.convolution.default"
    arguments: tuple[Argument, ...]  # what a point has values for
    # Takes the values by name, returns what eager PyTorch calls the op with
    call: Callable[..., Call]
    # Takes them too, says whether a model has them together; None where all go well with each other
    plausible: Callable[..., bool] | None = None

    @property
    def name(self) -> str:
        """What it is called on the command line, "convolution"."""
        return self.op.split(".")[1]

    def at(self, point: Point, dtype: str = FLOAT) -> Op:
        """Return the op at a point; its flops and bytes are not counted yet."""
        args, kwargs = self.call(**point)
        return Op(self.op, encode_arguments(_as(dtype, args), _as(dtype, kwargs)))

    def fixed(self, values: Mapping[str, int]) -> Family:
        """Return the family with those of its arguments that `values` names held there.

        Raises:
            InputError: a value below 1.
        """
        for name, value in values.items():
            if value < 1:
                raise InputError(f"{name} must be 1 or more, not {value}")
        held = tuple(
            Argument(each.name, (values[each.name],), values[each.name])
            if each.name in values
            else each
            for each in self.arguments
        )
        return replace(self, arguments=held)

    def argument(self, name: str) -> Argument:
        """Return the argument of a name.

        Raises:
            InputError: there is none.
        """
        for each in self.arguments:
            if each.name == name:
                return each
        raise unknown(f"argument of {self.name}", name, [each.name for each in self.arguments])


def tensor(*shape: int, dtype: str = FLOAT, stride: Sequence[int] | None = None) -> TensorArgument:
    """Return a tensor of the design's dtype, contiguous unless `stride` says otherwise."""
    return TensorArgument(shape, dtype, None if stride is None else tuple(stride))


def _as(dtype: str, value: Any) -> Any:
    """Replace the dtype that the tables are written in."""
    if isinstance(value, TensorArgument):
        return replace(value, dtype=dtype) if value.dtype == FLOAT else value
    if isinstance(value, list):
        return [_as(dtype, each) for each in value]
    if isinstance(value, dict):
        return {key: _as(dtype, each) for key, each in value.items()}
    return dtype if value == FLOAT else value
