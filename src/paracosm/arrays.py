"""Arrays by the type of their numbers, as annotations name them, and their distinct rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]  # places in tables and lists
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def refuse_masked(values: Any, what: str) -> None:
    """Raise InputError for a masked array: NumPy would read the numbers under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{what}: a masked array is no argument: give numbers")


def distinct_rows(rows: Ints) -> tuple[Ints, Ints]:
    """Return the first place of each distinct row, in the rows' order, and each row's number.

    They are those of `np.unique(rows, axis=0)`, which compares rows field by field and takes 40
    times as long.
    """
    number = np.zeros(len(rows), dtype=np.int64)
    if not len(rows):
        return number, number
    varying = rows[:, (rows != rows[0]).any(axis=0)]
    if not varying.shape[1]:
        return np.zeros(1, dtype=np.int64), number
    order = np.lexsort(varying.T[::-1])
    ordered = varying[order]
    is_new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number
