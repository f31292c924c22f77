"""Which processor updates which rows: blocks of rows, and how a processor chooses its next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paracosm.errors import InputError

__all__ = ["Choice", "Pattern", "pattern_from_blocks"]

Choice = Literal["fixed", "cyclic", "random"]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Rows dealt into blocks, and blocks into the hands of processors.

    Args:
        name: as the output shows it.
        pointer: block k holds `rows[pointer[k]:pointer[k + 1]]`; shape (blocks + 1,).
        rows: the rows of all blocks, one block after the other, in the order of their relaxation.
        choice: "fixed": processor l always updates block l; "cyclic": its blocks l, l + p, l + 2p,
            ... in turn (p processors); "random": any block, drawn anew at every update.
        processors: how many there are.
    """

    name: str
    pointer: NDArray[np.int64]
    rows: NDArray[np.int64]
    choice: Choice
    processors: int

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.pointer.size - 1

    def block(self, index: int) -> NDArray[np.int64]:
        """Return the rows of block `index`."""
        return self.rows[self.pointer[index] : self.pointer[index + 1]]


def pattern_from_blocks(
    blocks: Sequence[ArrayLike],
    unknowns: int,
    *,
    processors: int | None = None,
    choice: Choice = "fixed",
    name: str = "custom",
) -> Pattern:
    """Return the pattern whose block k holds the rows `blocks[k]`, which may overlap.

    `processors` is the number of blocks unless given, as `choice` "cyclic" and "random" allow.

    Raises:
        InputError: a block that is empty, a row that does not exist, stands twice in a block or
            stands in none (Definition 1 asks that every component continues to be updated), or
            fewer blocks than processors need.
    """
    processors = len(blocks) if processors is None else processors
    arrays = [np.asarray(block) for block in blocks]
    for k, rows in enumerate(arrays):
        if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
            raise InputError(f"pattern {name}: block {k} must be a list of one row or more")
        if rows.min() < 0 or rows.max() >= unknowns:
            wrong = rows[(rows < 0) | (rows >= unknowns)][0]
            raise InputError(
                f"pattern {name}: block {k} names row {wrong}, but rows are 0 to {unknowns - 1}"
            )
        if np.unique(rows).size < rows.size:
            raise InputError(f"pattern {name}: block {k} names a row twice")
    if not 1 <= processors <= len(arrays):
        raise InputError(
            f"pattern {name}: {len(arrays)} blocks are too few for {processors} processors"
        )
    if choice == "fixed" and processors != len(arrays):
        raise InputError(
            f"pattern {name}: with fixed blocks there are as many processors as blocks "
            f"({len(arrays)}), not {processors}"
        )
    rows = np.concatenate(arrays).astype(np.int64)
    left_out = np.setdiff1d(np.arange(unknowns), rows)
    if left_out.size:
        raise InputError(
            f"pattern {name}: {left_out.size} rows are in no block and would never be updated, "
            f"the first of them {left_out[0]}"
        )
    pointer = np.concatenate([[0], np.cumsum([block.size for block in arrays])]).astype(np.int64)
    return Pattern(name, pointer, rows, choice, processors)
