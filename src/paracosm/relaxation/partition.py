"""Rows dealt into blocks: consecutive ones, equal in size or in work, or by the matrix's graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paracosm.arrays import Ints
from paracosm.compiled import compiled, shaped
from paracosm.errors import InputError, require

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Pointer = Ints
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
    pointer: Ints
    rows: Ints
    choice: Choice
    processors: int

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.pointer.size - 1

    def block(self, index: int) -> Ints:
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


def contiguous(unknowns: int, processors: int) -> Pattern:
    """Return one block of consecutive rows per processor, equal in size to within one row."""
    return equal_blocks("contiguous", unknowns, processors, processors, "fixed")


def equal_blocks(name: str, unknowns: int, processors: int, blocks: int, choice: Choice) -> Pattern:
    """Return `blocks` blocks of consecutive rows, equal in size to within one row."""
    check_processors(unknowns, processors)
    if not processors <= blocks <= unknowns:
        raise InputError(
            f"pattern {name}: blocks must be from {processors} (processors) to {unknowns} (rows), "
            f"not {blocks}"
        )
    return Pattern(name, _equal(unknowns, blocks), np.arange(unknowns), choice, processors)


def by_nonzeros(pointer: NDArray[np.integer], processors: int) -> Pattern:
    """Return consecutive blocks of about equally many non-zeros, from the CSR pointer, (n + 1,).

    Each cut is at the row whose running count is nearest to that block's share.
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
    """
    check_processors(unknowns, processors)
    if rows < 1:
        raise InputError(f"pattern overlapping: rows must be 1 or more, not {rows}")
    pointer = _equal(unknowns, processors)
    reach = min(rows, unknowns)
    first = np.maximum(pointer[:-1] - reach, 0)
    end = np.minimum(pointer[1:] + reach, unknowns)
    held = [np.arange(begin, stop) for begin, stop in zip(first, end, strict=True)]
    extended = np.concatenate([[0], np.cumsum(end - first)])
    name = f"overlapping(rows={rows})"
    return Pattern(name, extended, np.concatenate(held), "fixed", processors)


def check_processors(unknowns: int, processors: int) -> None:
    """Refuse fewer than one processor, and more of them than rows."""
    if processors < 1:
        raise InputError(f"processors: give 1 or more, not {processors}")
    if processors > unknowns:
        raise InputError(
            f"more processors ({processors}) than rows ({unknowns}): give at most {unknowns}"
        )


def _equal(unknowns: int, blocks: int) -> Pointer:
    return np.arange(blocks + 1, dtype=np.int64) * unknowns // blocks


Method = Literal["auto", "metis", "bisection"]
METHODS: tuple[Method, ...] = ("auto", "metis", "bisection")


def graph(A: csr_array, processors: int, method: Method = "auto", seed: int = 0) -> Pattern:
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
        from paracosm.relaxation.partition import bisect

        owner = bisect(pointer, neighbours, processors)
    return pattern_from_owner(owner, processors, f"graph(method={method})")


def adjacency(A: csr_array) -> tuple[Ints, Ints]:
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


def _metis(pointer: Ints, neighbours: Ints, processors: int, seed: int) -> Ints:
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


@shaped("n+1: pointer; edges: neighbours")
@compiled
def bisect(pointer: Any, neighbours: Any, parts: Any) -> Any:
    """Return the part of each vertex, 0 to parts - 1; sizes differ by one vertex at most.

    A segment of the graph that is to become several parts is ordered by breadth-first search from a
    vertex far from the others (George and Liu, "Computer Solution of Large Sparse Positive Definite
    Systems", 1981: a pseudo-peripheral vertex) and cut in two where the sizes ask for it; each half
    is treated alike.

    Args:
        pointer, neighbours: the graph as symmetric CSR without loops, shapes (n + 1,) and (edges,).
        parts: how many, at most n.
    """
    n = pointer.size - 1
    owner = np.zeros(n, np.int64)
    order = np.arange(n)  # the vertices of every segment stand together
    mark = np.zeros(n, np.int64)
    segment = np.zeros(n, np.int64)
    queue = np.empty(n, np.int64)
    stack = np.empty((128, 2), np.int64)  # ranges of parts; a bisection is at most 64 deep
    stack[0, 0], stack[0, 1] = 0, parts
    depth, stamp, segments = 1, 0, 1
    while depth > 0:
        depth -= 1
        first, end = stack[depth, 0], stack[depth, 1]
        begin, stop = first * n // parts, end * n // parts
        if end - first == 1:
            for place in range(begin, stop):
                owner[order[place]] = first
            continue
        far = order[begin]
        for _ in range(3):
            stamp += 1
            _search(pointer, neighbours, order, begin, stop, far, segment, mark, stamp, queue)
            far = queue[stop - begin - 1]
        middle = (first + end) // 2
        cut = middle * n // parts
        for place in range(begin, stop):
            order[place] = queue[place - begin]
            if place >= cut:
                segment[order[place]] = segments
        segments += 1
        stack[depth, 0], stack[depth, 1] = first, middle
        stack[depth + 1, 0], stack[depth + 1, 1] = middle, end
        depth += 2
    return owner


@compiled
def _search(
    pointer: Any,
    neighbours: Any,
    order: Any,
    begin: Any,
    stop: Any,
    start: Any,
    segment: Any,
    mark: Any,
    stamp: Any,
    queue: Any,
) -> None:
    """Write the vertices of the segment at order[begin:stop] into `queue`, breadth first."""
    inside = segment[start]
    tail = 0
    following = begin
    for head in range(stop - begin):
        if head == tail:  # the next connected component
            vertex = start
            if head > 0:
                while mark[order[following]] == stamp:
                    following += 1
                vertex = order[following]
            mark[vertex] = stamp
            queue[tail] = vertex
            tail += 1
        vertex = queue[head]
        for place in range(pointer[vertex], pointer[vertex + 1]):
            neighbour = neighbours[place]
            if segment[neighbour] == inside and mark[neighbour] != stamp:
                mark[neighbour] = stamp
                queue[tail] = neighbour
                tail += 1
