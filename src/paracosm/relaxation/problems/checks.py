"""Any matrix into the one form that the rest reads, or one line that says why it cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["as_csr", "check_diagonal"]

_SHOWN = 5


def as_csr(matrix: Any, name: str) -> csr_array:
    """Return a SciPy sparse matrix, or anything that NumPy reads as one, as a new `csr_array`.

    float64, indices sorted, duplicates summed, stored zeros dropped, int32 indices where they fit.

    Raises:
        InputError: not two-dimensional, not real, not square, empty, or NaN or infinite entries
            (how many, and the first). Rows and columns are counted from 1, as in Matrix Market.
    """
    from scipy.sparse import csr_array, issparse

    if not issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise InputError(f"{name}: a matrix has two dimensions, not {matrix.ndim}")
    if matrix.dtype.kind == "c":
        raise InputError(f"{name}: its entries are complex; only real matrices are solved")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{name}: its entries must be real numbers, not {matrix.dtype}")
    rows, columns = matrix.shape
    if rows != columns:
        raise InputError(f"{name}: the matrix must be square, not {rows} x {columns}")
    if rows == 0:
        raise InputError(f"{name}: the matrix has no rows")
    result = csr_array(matrix, dtype=np.float64, copy=True)
    result.sum_duplicates()
    wrong = np.flatnonzero(~np.isfinite(result.data))
    if wrong.size:
        row = int(np.searchsorted(result.indptr, wrong[0], side="right"))
        column = int(result.indices[wrong[0]]) + 1
        raise InputError(
            f"{name}: {_count(wrong.size, 'entry is', 'entries are')} NaN or infinite, the first "
            f"({result.data[wrong[0]]}) at row {row}, column {column}, counted from 1"
        )
    result.eliminate_zeros()
    if result.indptr[-1] < 2**31 and rows < 2**31:
        result.indptr = result.indptr.astype(np.int32, copy=False)
        result.indices = result.indices.astype(np.int32, copy=False)
    return result


def check_diagonal(matrix: csr_array, name: str) -> None:
    """Refuse a matrix with empty rows, or with zeros on the diagonal, by which methods divide.

    Raises:
        InputError: how many rows, and the first five, counted from 1.
    """
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if empty.size:
        raise InputError(
            f"{name}: {_count(empty.size, 'row is', 'rows are')} empty: {_list(empty)}"
        )
    zero = np.flatnonzero(matrix.diagonal() == 0.0)
    if zero.size:
        raise InputError(
            f"{name}: the diagonal, by which a relaxation divides, is zero in "
            f"{_count(zero.size, 'row', 'rows')}: {_list(zero)}"
        )


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _list(rows: NDArray[np.int64]) -> str:
    shown = ", ".join(str(row + 1) for row in rows[:_SHOWN])
    return f"{shown}{', ...' if rows.size > _SHOWN else ''} (counted from 1)"
