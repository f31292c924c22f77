"""LU factors of the blocks, for local solves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.kernel.arrays import Factors
from paracosm.relaxation.patterns import Pattern

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["block_factors", "no_factors"]


def no_factors() -> Factors:
    """Return the factors of no block at all."""
    whole, index, real = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0)
    return Factors(whole, whole, index, real, whole, index, real, real, whole, whole)


def block_factors(A: csr_array, pattern: Pattern) -> Factors:
    """Factorise every block's own part of A (SuperLU): P A_kk Q = L U.

    Raises:
        InputError: a block that is singular.
    """
    from scipy.sparse.linalg import splu

    lower, upper, pivots, row_orders, column_orders = [], [], [], [], []
    for k in range(pattern.blocks):
        rows = pattern.block(k)
        try:
            factors = splu(A[rows][:, rows].tocsc())
        except RuntimeError:
            raise InputError(
                f"block-jacobi: the equations of block {k} alone are singular; "
                "choose another method or pattern"
            ) from None
        lower.append(_without_diagonal(factors.L.tocsc()))
        upper.append(_without_diagonal(factors.U.tocsc()))
        pivots.append(1.0 / factors.U.diagonal())
        row_orders.append(factors.perm_r)
        column_orders.append(factors.perm_c)
    return Factors(
        pattern.pointer.astype(np.int64),
        *_stacked(lower),
        *_stacked(upper),
        np.concatenate(pivots),
        np.concatenate(row_orders).astype(np.int64),
        np.concatenate(column_orders).astype(np.int64),
    )


def _without_diagonal(triangle: Any) -> Any:
    from scipy.sparse import csc_array

    columns = csc_array(triangle, copy=True)
    columns.setdiag(0)
    columns.eliminate_zeros()
    columns.sort_indices()
    return columns


def _stacked(parts: list[Any]) -> tuple[Any, Any, Any]:
    """Return pointers, indices (within a block) and data of all blocks behind each other."""
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    pointer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    index = np.concatenate([part.indices for part in parts]).astype(np.int32)
    return pointer, index, np.concatenate([part.data for part in parts])
