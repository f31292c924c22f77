"""A counting sort: which tasks belong to a resource or meeting."""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import compiled

__all__ = ["group"]


@compiled
def group(number: Any, groups: Any) -> Any:
    """Return CSR of the rows with each number, ascending; rows with -1 are in no group."""
    first = np.zeros(groups + 1, dtype=np.int64)
    for row in range(number.size):
        if number[row] >= 0:
            first[number[row]] += 1
    for one in range(groups):
        first[one + 1] += first[one]
    rows = np.empty(first[groups], dtype=np.int32)
    for row in range(number.size - 1, -1, -1):
        if number[row] >= 0:
            first[number[row]] -= 1
            rows[first[number[row]]] = row
    return first, rows
