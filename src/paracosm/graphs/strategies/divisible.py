"""Between how many ranks the layers of a graph can be split: whole heads, equal parts of matrices.

What a graph does not say about its ops (a layer as one node, a file without shapes) sets no limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.graphs.graph import Graph
from paracosm.graphs.op import Op, TensorArgument, decode_arguments

__all__ = ["check_divides"]

ATTENTION = "scaled_dot_product"
PRODUCTS = ("mm", "addmm")
"""Ops, by their names without framework and overload, whose last two arguments are the matrices."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that is split: one of these lengths has to be a multiple of the ranks."""

    what: str
    lengths: tuple[int, ...]

    def divides(self, ranks: int) -> bool:
        return any(length % ranks == 0 for length in self.lengths)


def check_divides(graph: Graph, rows: Iterable[int], ranks: int) -> None:
    """Check that so many tensor-parallel ranks can share these nodes.

    Args:
        graph: whose nodes.
        rows: of its forward pass.
        ranks: that split them.

    Raises:
        InputError: heads of an attention, or both sides of a matrix, that `ranks` does not divide;
            with the nearest number that divides all.
    """
    codes = dict.fromkeys(graph.op[row] for row in rows)
    found = dict.fromkeys(part for code in codes for part in _parts(graph.ops[code]))
    parts = sorted(found, key=lambda part: len(part.lengths))  # heads first
    for part in parts:
        if not part.divides(ranks):
            most = max(max(each.lengths) for each in parts)
            sound = [n for n in range(1, most + 1) if all(each.divides(n) for each in parts)]
            near = min(sound, key=lambda number: abs(number - ranks))
            raise InputError(
                f"strategy: tp={ranks} does not divide {part.what} of the model: tp={near} fits"
            )


def _parts(op: Op) -> list[_Part]:
    name = op.name.split(".")[1] if op.name.count(".") > 1 else op.name
    if not op.arguments or not (ATTENTION in name or name in PRODUCTS):
        return []
    arguments, _ = decode_arguments(op.arguments)
    shapes = [each.shape for each in arguments if isinstance(each, TensorArgument)]
    if ATTENTION in name:  # batch x heads x length x size: queries, then keys
        heads = {shape[1] for shape in shapes[:2] if len(shape) == 4}
        return [_Part(f"the {number} heads", (number,)) for number in sorted(heads)]
    rows, columns = shapes[-1] if shapes and len(shapes[-1]) == 2 else (0, 0)
    return [_Part(f"a matrix of {rows} x {columns}", (rows, columns))] if rows * columns else []
