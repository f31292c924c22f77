"""Blocks of consecutive rows: of equal size, of equal work, or overlapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.relaxation.patterns.pattern import Choice, Pattern

__all__ = ["by_nonzeros", "check_processors", "contiguous", "equal_blocks", "overlapping"]

Pointer = NDArray[np.int64]


def contiguous(unknowns: int, processors: int) -> Pattern:
    """Return one block of consecutive rows per processor, equal in size to within one row.

    Raises:
        InputError: more processors than rows, or none.
    """
    return equal_blocks("contiguous", unknowns, processors, processors, "fixed")


def equal_blocks(name: str, unknowns: int, processors: int, blocks: int, choice: Choice) -> Pattern:
    """Return `blocks` blocks of consecutive rows, equal in size to within one row.

    Raises:
        InputError: more processors or blocks than rows, or fewer blocks than processors.
    """
    check_processors(unknowns, processors)
    if not processors <= blocks <= unknowns:
        raise InputError(
            f"pattern {name}: blocks must be from {processors} (processors) to {unknowns} (rows), "
            f"not {blocks}"
        )
    return Pattern(name, _equal(unknowns, blocks), np.arange(unknowns), choice, processors)


def by_nonzeros(pointer: NDArray[np.integer], processors: int) -> Pattern:
    """Return blocks of consecutive rows with about equally many non-zeros each, one row at least.

    Each cut is at the row whose running count is nearest to that block's share.

    Args:
        pointer: of the matrix in CSR, shape (n + 1,).
        processors: how many blocks.

    Raises:
        InputError: more processors than rows, or none.
    """
    unknowns = pointer.size - 1
    check_processors(unknowns, processors)
    share = np.arange(processors + 1) * (int(pointer[-1]) / processors)
    after = np.searchsorted(pointer, share).clip(1, unknowns)
    nearest = after - (share - pointer[after - 1] < pointer[after] - share)
    nearest[[0, -1]] = 0, unknowns
    # One row at least in every block: cuts ascend strictly, from either end.
    number = np.arange(processors + 1)
    cuts = np.maximum.accumulate(nearest - number) + number
    cuts = np.minimum(cuts, unknowns - processors + number)
    return Pattern("nonzeros", cuts.astype(np.int64), np.arange(unknowns), "fixed", processors)


def overlapping(unknowns: int, processors: int, rows: int) -> Pattern:
    """Return contiguous blocks, each with up to `rows` more rows on either side.

    A row in an overlap is updated by every processor that holds it; the last write stands.

    Raises:
        InputError: more processors than rows, or none; fewer than one row of overlap.
    """
    check_processors(unknowns, processors)
    if rows < 1:
        raise InputError(f"pattern overlapping: rows must be 1 or more, not {rows}")
    pointer = _equal(unknowns, processors)
    first = np.maximum(pointer[:-1] - rows, 0)
    end = np.minimum(pointer[1:] + rows, unknowns)
    held = [np.arange(begin, stop) for begin, stop in zip(first, end, strict=True)]
    extended = np.concatenate([[0], np.cumsum(end - first)])
    name = f"overlapping(rows={rows})"
    return Pattern(name, extended, np.concatenate(held), "fixed", processors)


def check_processors(unknowns: int, processors: int) -> None:
    """Refuse fewer than one processor, and more of them than rows.

    Raises:
        InputError: which, and how many there may be.
    """
    if processors < 1:
        raise InputError(f"processors: give 1 or more, not {processors}")
    if processors > unknowns:
        raise InputError(
            f"more processors ({processors}) than rows ({unknowns}): give at most {unknowns}"
        )


def _equal(unknowns: int, blocks: int) -> Pointer:
    return np.arange(blocks + 1, dtype=np.int64) * unknowns // blocks
