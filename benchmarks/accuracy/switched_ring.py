"""Links over which NCCL sends small messages by another protocol than large ones.

One latency and one bandwidth fit the large messages of a sweep or its small ones, seldom both: NCCL
sends small messages by protocols with little latency and less bandwidth (LL, LL128), large ones by
another (Simple), and goes over where it reckons that the latter is faster (`src/graph/tuning.cc`,
`ncclTopoTuneModel` and `ncclTopoGetAlgoTime`). Either link is fitted to a sweep (`fit_ring`,
`fit_switched_ring`), or both are from the constants that NCCL reckons with (`nccl_link`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, sqrt

from paracosm.cluster.link import LOCAL, Link
from paracosm.errors import InputError

__all__ = ["SwitchedLink", "fit_ring", "fit_switched_ring", "nccl_link"]

BASE = {"LL128": 14e-6, "Simple": 8.4e-6}
"""Seconds of a ring before its first step (`baseLat`)."""
STEP = {"LL128": 1.9e-6, "Simple": 3.4e-6}
"""Seconds of each step over NVLink (`hwLat`)."""
RECKONED = 0.92
"""Share of a ring's bandwidth with which NCCL credits LL128 within a machine."""
REACHED = 0.735
"""Share that LL128 reached: median of the sweeps on 4, 6, 7 and 8 V100, in which NCCL goes over to
Simple above 2 MiB (0.71, 0.92, 0.76, 0.66; vTrain's tables)."""


@dataclass(frozen=True)
class SwitchedLink(Link):
    """A link that sends messages of less than `threshold` bytes as `small` would.

    In a ring of p ranks a message is one p-th of the vector.
    """

    small: Link = LOCAL
    threshold: float = 0.0

    def occupancy(self, size: float) -> float:
        return self.small.occupancy(size) if size < self.threshold else super().occupancy(size)

    def propagation(self, size: float) -> float:
        return self.small.propagation(size) if size < self.threshold else super().propagation(size)

    def transfer_time(self, size: float) -> float:
        if size < self.threshold:
            return self.small.transfer_time(size)
        return super().transfer_time(size)


def nccl_link(ranks: int, bandwidth: float, share: float = REACHED) -> SwitchedLink:
    """Return the NVLinks of one machine as NCCL uses them for an all-reduce by a ring.

    NCCL goes over to Simple where it reckons that what its bandwidth saves makes up for its
    latency: from (1 / 0.92 - 1) / `bandwidth` = latency of a step more, for each byte of a message.

    Args:
        ranks: in the ring.
        bandwidth: of the ring with large messages, bytes/s.
        share: of that which LL128 reaches.
    """
    steps = 2 * (ranks - 1)
    latency = {name: BASE[name] / steps + STEP[name] for name in BASE}
    saved = (1 / RECKONED - 1) / bandwidth
    return SwitchedLink(
        bandwidth=bandwidth,
        latency=latency["Simple"],
        pipelined=False,
        small=Link(bandwidth=share * bandwidth, latency=latency["LL128"], pipelined=False),
        threshold=max((latency["Simple"] - latency["LL128"]) / saved, 0.0),
    )


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


def fit_switched_ring(ranks: int, sizes: Sequence[float], seconds: Sequence[float]) -> SwitchedLink:
    """Return the two links that err least together, of all ways to divide the sizes between them.

    The threshold is that of the geometric mean of the largest size of one link and the smallest of
    the other. With fewer than five sizes, or where one link errs no more, there is only one.

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
    best = sums.line(0, count)[0]
    switched = SwitchedLink(bandwidth=single.bandwidth, latency=single.latency)
    for cut in range(2, count - 2):
        left, right = sums.line(0, cut), sums.line(cut, count)
        if left[0] + right[0] < best and min(left[2], right[2]) > 0:
            best = left[0] + right[0]
            small, large = _link(ranks, *left[1:]), _link(ranks, *right[1:])
            switched = SwitchedLink(
                bandwidth=large.bandwidth,
                latency=large.latency,
                small=small,
                threshold=sqrt(sizes[cut - 1] * sizes[cut]) / ranks,
            )
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
