"""A cycle in a directed graph, where there is one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["find_cycle"]

Ints = npt.NDArray[np.int64]


def find_cycle(offsets: Ints, dependencies: Ints) -> list[int]:
    """Return a shortest cycle through the lowest row that is on any, or nothing.

    Args:
        offsets, dependencies: CSR: `dependencies[offsets[i]:offsets[i + 1]]` are the rows that row
            i waits for.

    Returns:
        Rows, each of which waits for the next one, and the last for the first.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    alone = rows[rows == dependencies]
    n = len(offsets) - 1
    waits = csr_array((np.ones(len(rows), dtype=np.int8), (rows, dependencies)), shape=(n, n))
    _, component = connected_components(waits, directed=True, connection="strong")
    joined = np.flatnonzero(np.bincount(component)[component] > 1)
    if len(alone) and not (len(joined) and joined[0] < alone[0]):
        return [int(alone[0])]
    if not len(joined):
        return []
    start = int(joined[0])
    order, before = breadth_first_order(waits, start, directed=True, return_predecessors=True)
    closing = set(rows[dependencies == start].tolist())
    row = next(int(row) for row in order if int(row) in closing)
    path = [row]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]
