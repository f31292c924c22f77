"""One op at many values of one argument, as figure 2 of Huang et al. draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paracosm.errors import InputError
from paracosm.graphs.op import Op
from paracosm.profiling.designs.count import counted
from paracosm.profiling.designs.families import FAMILIES
from paracosm.profiling.designs.family import FLOAT, Family, Point

__all__ = ["along", "figure2_design"]


def along(
    family: Family, argument: str, values: Sequence[int], at: Point, dtype: str = FLOAT
) -> dict[int, Op]:
    """Return the op for each value of one argument, with flops and bytes.

    Args:
        family: of the op.
        argument: that varies.
        values: that it takes.
        at: the other arguments, where they are not at the family's base point.

    Raises:
        InputError: the family has no such argument; no values.
    """
    if not values:
        raise InputError(f"{family.name}: give values of {argument}")
    family.argument(argument)
    base = {each.name: each.base for each in family.arguments}
    for name, value in at.items():
        family.argument(name)
        base[name] = value
    return {value: counted(family.at(base | {argument: value}, dtype)) for value in values}


FIGURE2: Mapping[str, int] = {"batch": 16, "outputs": 64, "size": 32, "kernel": 3, "stride": 1}
"""The paper says of its convolution only that the input channels vary."""


def figure2_design(values: int = 16, step: int = 32, at: Point = FIGURE2) -> dict[int, Op]:
    """Return a convolution for `values` numbers of input channels: `step`, twice `step`, ..."""
    channels = [step * number for number in range(1, values + 1)]
    return along(FAMILIES["convolution"], "inputs", channels, at)
