"""Pieces in an order of issue: each after what it comes after, and those of a lane as they ran."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.prediction.traces.piece import Piece

__all__ = ["in_order"]


def in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces by begin, but none before one that it comes after.

    Instants alone do not say: many spans of an old trace take no microsecond, and begin and end
    with what they wait for.

    Args:
        pieces: those of each lane in the order in which they ran.
    """
    before: dict[int, Piece] = {}
    last: dict[str, Piece] = {}
    for piece in pieces:
        if piece.lane in last:
            before[id(piece)] = last[piece.lane]
        last[piece.lane] = piece
    done: set[int] = set()
    ordered: list[Piece] = []
    for piece in sorted(pieces, key=lambda each: (each.begin, each.end)):
        stack = [piece]
        while stack:
            top = stack[-1]
            if id(top) in done:
                stack.pop()
                continue
            needed = top.after if id(top) not in before else [*top.after, before[id(top)]]
            missing = [each for each in needed if id(each) not in done]
            if missing:
                stack += missing
            else:
                done.add(id(top))
                ordered.append(top)
                stack.pop()
    return ordered
