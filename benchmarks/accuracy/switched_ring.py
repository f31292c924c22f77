"""A ring all-reduce that changes its protocol at a size, and fitting one to a sweep of sizes.

One latency and one bandwidth fit the large messages of a sweep or its small ones, seldom both: NCCL
sends small messages by protocols with little latency and less bandwidth (LL, LL128), large ones by
another (Simple), and goes over where it reckons that the latter is faster (`src/graph/tuning.cc`,
`ncclTopoGetAlgoTime`). So there are two rings, each with a link of its own, and a size at which one
takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, sqrt

from paracosm.cluster.collectives import ring_all_reduce
from paracosm.cluster.link import Link
from paracosm.errors import InputError

__all__ = ["SwitchedRing", "fit_ring", "fit_switched_ring"]


@dataclass(frozen=True)
class SwitchedRing:
    """Two rings of the same ranks.

    Attributes:
        ranks: in the ring.
        small: the link of the ring that carries vectors below `threshold`.
        large: that of the other.
        threshold: bytes.
    """

    ranks: int
    small: Link
    large: Link
    threshold: float

    def all_reduce(self, size: float) -> float:
        """Return the seconds that an all-reduce of `size` bytes takes."""
        link = self.small if size < self.threshold else self.large
        return ring_all_reduce(self.ranks, size, link)


def fit_ring(ranks: int, sizes: Sequence[float], seconds: Sequence[float]) -> Link:
    """Return the link whose ring all-reduces err least: the least sum of squared relative errors.

    Args:
        ranks: in the ring.
        sizes: bytes of the vectors that were reduced.
        seconds: that each of them took.

    Raises:
        InputError: fewer than two sizes; times or sizes that are not above 0; one rank.
    """
    sums = _Sums(ranks, sizes, seconds)
    _, latency, per_byte = sums.line(0, len(sizes))
    if not per_byte > 0:
        raise InputError("all-reduces of these sizes take no longer for more bytes: no bandwidth")
    return _link(ranks, latency, per_byte)


def fit_switched_ring(ranks: int, sizes: Sequence[float], seconds: Sequence[float]) -> SwitchedRing:
    """Return the two rings that err least together, of all ways to divide the sizes between them.

    The threshold is the geometric mean of the largest size of one ring and the smallest of the
    other. With fewer than five sizes, or where one ring errs no more, both are the same.

    Args:
        ranks: in the ring.
        sizes: bytes of the vectors that were reduced, ascending.
        seconds: that each of them took.

    Raises:
        InputError: as `fit_ring`; sizes that do not ascend.
    """
    if any(a >= b for a, b in pairwise(sizes)):
        raise InputError("sizes of a sweep must ascend, each but once")
    single = fit_ring(ranks, sizes, seconds)
    sums = _Sums(ranks, sizes, seconds)
    count = len(sizes)
    best, switched = sums.line(0, count)[0], SwitchedRing(ranks, single, single, inf)
    for cut in range(2, count - 2):
        left, right = sums.line(0, cut), sums.line(cut, count)
        if left[0] + right[0] < best and min(left[2], right[2]) > 0:
            best = left[0] + right[0]
            links = _link(ranks, *left[1:]), _link(ranks, *right[1:])
            switched = SwitchedRing(ranks, *links, sqrt(sizes[cut - 1] * sizes[cut]))
    return switched


class _Sums:
    """Running sums over a sweep, from which the line through any part of it follows at once."""

    def __init__(self, ranks: int, sizes: Sequence[float], seconds: Sequence[float]) -> None:
        if len(sizes) != len(seconds):
            raise InputError(f"{len(sizes)} sizes and {len(seconds)} times: give one for each")
        if ranks < 2 or len(sizes) < 2:
            raise InputError(f"{len(sizes)} sizes and {ranks} ranks: a ring needs 2 of both")
        if not all(0 < value < inf for value in (*sizes, *seconds)):
            raise InputError("sizes and times of a sweep must be above 0")
        ones = [1 / time for time in seconds]
        bytes_ = [size / time for size, time in zip(sizes, seconds, strict=True)]
        pairs = list(zip(ones, bytes_, strict=True))
        self._columns = [
            [0.0, *accumulate(values)]
            for values in (
                ones,
                bytes_,
                [a * a for a, _ in pairs],
                [a * b for a, b in pairs],
                [b * b for _, b in pairs],
            )
        ]

    def line(self, first: int, last: int) -> tuple[float, float, float]:
        """Return the squared relative error, latency and seconds per byte of a part's best line."""
        a, b, aa, ab, bb = (column[last] - column[first] for column in self._columns)
        determinant = aa * bb - ab * ab
        latency = (a * bb - b * ab) / determinant if determinant > 0 else 0.0
        if latency <= 0:
            return (last - first) - b * b / bb, 0.0, b / bb
        per_byte = (b * aa - a * ab) / determinant
        return (last - first) - latency * a - per_byte * b, latency, per_byte


def _link(ranks: int, latency: float, per_byte: float) -> Link:
    """Return the link on which a ring takes so long: 2 (p - 1) steps of 1 / p of the bytes."""
    steps = 2 * (ranks - 1)
    return Link(bandwidth=steps / (ranks * per_byte), latency=latency / steps)
