"""How the layers of a graph are divided between ranks: whole heads, equal parts of matrices.

What a graph does not say about its ops (a layer as one node, a file without shapes) sets no limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.graphs.graph import Graph
from paracosm.graphs.op import Op, TensorArgument, decode_arguments

__all__ = ["check_divides", "shares_of_heads"]

ATTENTION = "scaled_dot_product"
PRODUCTS = ("mm", "addmm")
"""Ops, by their names without framework and overload, whose last two arguments are the matrices."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that is split: heads, or a matrix along one of its sides."""

    what: str
    lengths: tuple[int, ...]
    are_heads: bool = False

    def divides(self, ranks: int) -> bool:
        """Return whether ranks have equal parts of a matrix, or a head each at least."""
        if self.are_heads:
            return ranks <= max(self.lengths)
        return any(length % ranks == 0 for length in self.lengths)


def check_divides(graph: Graph, rows: Iterable[int], ranks: int) -> None:
    """Check that so many tensor-parallel ranks can share these nodes.

    Args:
        graph: whose nodes.
        rows: of its forward pass.
        ranks: that split them.

    Raises:
        InputError: more ranks than an attention has heads, or a matrix of which `ranks` divides
            neither side; with the nearest number that fits all.
    """
    codes = dict.fromkeys(graph.op[row] for row in rows)
    found = dict.fromkeys(part for code in codes for part in _parts(graph.ops[code]))
    parts = sorted(found, key=lambda part: not part.are_heads)
    for part in parts:
        if not part.divides(ranks):
            most = max(max(each.lengths) for each in parts)
            sound = [n for n in range(1, most + 1) if all(each.divides(n) for each in parts)]
            near = min(sound, key=lambda number: abs(number - ranks))
            reason = "is more than" if part.are_heads else "does not divide"
            raise InputError(
                f"strategy: tp={ranks} {reason} {part.what} of the model: tp={near} fits"
            )


def shares_of_heads(graph: Graph, rows: Iterable[int], ranks: int) -> dict[str, float]:
    """Return the largest part of each attention that one of these ranks has, by its place.

    Heads stay whole: between 8 ranks, some have 2 of 12.
    """
    shares: dict[str, float] = {}
    for row in rows:
        heads = [max(part.lengths) for part in _parts(graph.ops[graph.op[row]]) if part.are_heads]
        for number in heads:
            place = graph.names[graph.name[row]]
            shares[place] = max(shares.get(place, 0.0), -(-number // ranks) / number)
    return shares


def _parts(op: Op) -> list[_Part]:
    name = op.name.split(".")[1] if op.name.count(".") > 1 else op.name
    if not op.arguments or not (ATTENTION in name or name in PRODUCTS):
        return []
    arguments, _ = decode_arguments(op.arguments)
    shapes = [each.shape for each in arguments if isinstance(each, TensorArgument)]
    if ATTENTION in name:  # batch x heads x length x size: queries, then keys
        heads = {shape[1] for shape in shapes[:2] if len(shape) == 4}
        return [_Part(f"the {number} heads", (number,), True) for number in sorted(heads)]
    rows, columns = shapes[-1] if shapes and len(shapes[-1]) == 2 else (0, 0)
    return [_Part(f"a matrix of {rows} x {columns}", (rows, columns))] if rows * columns else []
