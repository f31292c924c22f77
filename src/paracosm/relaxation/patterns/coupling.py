"""How much the blocks of a pattern read from one another: edge cut and halos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.patterns.graph import adjacency
from paracosm.relaxation.patterns.pattern import Pattern

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["edge_cut", "halo_sizes"]


def edge_cut(A: csr_array, pattern: Pattern) -> int:
    """Return how many pairs of coupled rows (a_ij or a_ji not zero) lie in different blocks.

    A row that several blocks hold counts for the first of them.
    """
    owner = np.empty(A.shape[0], dtype=np.int64)
    block = np.repeat(np.arange(pattern.blocks), np.diff(pattern.pointer))
    owner[pattern.rows[::-1]] = block[::-1]  # the last assignment stands: that of the first block
    pointer, neighbours = adjacency(A)
    return int(np.sum(np.repeat(owner, np.diff(pointer)) != owner[neighbours])) // 2


def halo_sizes(A: csr_array, pattern: Pattern) -> NDArray[np.int64]:
    """Return how many components outside itself each block reads; shape (blocks,)."""
    sizes = np.empty(pattern.blocks, dtype=np.int64)
    seen = np.full(A.shape[0], -1, dtype=np.int64)
    for index in range(pattern.blocks):
        rows = pattern.block(index)
        starts, counts = A.indptr[rows], A.indptr[rows + 1] - A.indptr[rows]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
        seen[rows] = index
        read = A.indices[places]
        sizes[index] = np.unique(read[seen[read] != index]).size
    return sizes
