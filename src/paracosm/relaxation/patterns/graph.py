"""Blocks of rows that are coupled little: a partition of the matrix's graph."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError, require
from paracosm.relaxation.patterns.contiguous import check_processors
from paracosm.relaxation.patterns.pattern import Pattern

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["METHODS", "Method", "adjacency", "graph", "pattern_from_owner"]

Method = Literal["auto", "metis", "bisection"]
METHODS: tuple[Method, ...] = ("auto", "metis", "bisection")


def graph(
    A: csr_array,
    processors: int,
    method: Method = "auto",
    seed: int = 0,
) -> Pattern:
    """Return a partition of the graph of A (of |A| + |A|^T) into one block per processor.

    "metis" is multilevel partitioning (Karypis and Kumar, SIAM J. Sci. Comput. 20, 1998), which
    pymetis brings; its blocks differ by some per cent in size. "bisection" is built in: recursive
    bisection by breadth-first search, blocks equal in size to within one row. "auto" is "metis"
    where it is installed. The pattern's name says which it was.

    Raises:
        InputError: more processors than rows, or none.
        MissingExtraError: "metis" without pymetis.
    """
    check_processors(A.shape[0], processors)
    if method == "auto":
        method = "metis" if find_spec("pymetis") else "bisection"
    pointer, neighbours = adjacency(A)
    if method == "metis":
        owner = _metis(pointer, neighbours, processors, seed)
    else:
        from paracosm.relaxation.patterns.bisection_kernel import bisect

        owner = bisect(pointer, neighbours, processors)
    return pattern_from_owner(owner, processors, f"graph(method={method})")


def adjacency(A: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the graph of |A| + |A|^T without loops, as CSR pointer and neighbours."""
    from scipy.sparse import csr_array

    n = A.shape[0]
    rows = np.repeat(np.arange(n, dtype=A.indices.dtype), np.diff(A.indptr))
    coupled = rows != A.indices
    rows, columns = rows[coupled], A.indices[coupled]
    half = csr_array((np.ones(rows.size, dtype=np.int8), (rows, columns)), shape=(n, n))
    both: Any = half + half.T
    both.sort_indices()
    return both.indptr.astype(np.int64), both.indices.astype(np.int64)


def pattern_from_owner(owner: NDArray[np.integer], processors: int, name: str) -> Pattern:
    """Return the pattern in which processor `owner[i]` updates row i; every one must own a row."""
    counts = np.bincount(owner, minlength=processors)
    pointer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    rows = np.argsort(owner, kind="stable")
    return Pattern(name, pointer, rows.astype(np.int64), "fixed", processors)


def _metis(
    pointer: NDArray[np.int64], neighbours: NDArray[np.int64], processors: int, seed: int
) -> NDArray[np.int64]:
    """Return the owner of each row as METIS deals them, then one row at least to each processor."""
    pymetis = require("pymetis", "metis", "the pattern graph(method=metis)")
    if processors == 1:
        return np.zeros(pointer.size - 1, dtype=np.int64)
    try:
        _, membership = pymetis.part_graph(
            processors,
            adjacency=pymetis.CSRAdjacency(pointer, neighbours),
            options=pymetis.Options(seed=seed % 2**31),
        )
    except RuntimeError as error:
        raise InputError(f"pattern graph: METIS refuses this matrix: {error}") from None
    owner = np.asarray(membership, dtype=np.int64)
    counts = np.bincount(owner, minlength=processors)
    for empty in np.flatnonzero(counts == 0):
        largest = counts.argmax()
        owner[np.flatnonzero(owner == largest)[-1]] = empty
        counts[largest] -= 1
        counts[empty] = 1
    return owner
