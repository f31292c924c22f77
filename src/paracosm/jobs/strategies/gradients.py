"""The gradients of a graph, and the buckets that they are reduced in.

Gradients are the storages that backward nodes allocate and that outlive the step. Buckets are
filled in the order in which gradients appear, and closed by the gradient that fills them up: so
does PyTorch's DDP, after it has seen one iteration (Li et al., "PyTorch Distributed: Experiences on
Accelerating Data Parallel Training", VLDB 2020, sections 3.2 and 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.graphs.graph import Storages

__all__ = ["Bucket", "buckets_of", "gradient_bytes"]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together.

    Attributes:
        rows: of the nodes that make them, in order.
        size: bytes.
    """

    rows: tuple[int, ...]
    size: int


def gradient_bytes(
    storages: Storages, size: npt.NDArray[np.int64], rows: range, count: int
) -> npt.NDArray[np.int64]:
    """Return the bytes of gradients that each of `count` nodes makes.

    Args:
        storages: of the graph.
        size: bytes of each of them.
        rows: of the backward pass.
        count: of nodes.
    """
    sizes = np.zeros(count, dtype=np.int64)
    first = storages.first
    lasting = (first >= rows.start) & (first < rows.stop) & (storages.last == count)
    np.add.at(sizes, first[lasting], size[lasting])
    return sizes


def buckets_of(
    rows: Sequence[int], sizes: npt.NDArray[np.int64], first: float, usual: float
) -> list[Bucket]:
    """Return the buckets of these backward rows.

    Args:
        rows: of one rank, in the order in which they run.
        sizes: bytes of gradients of every node.
        first, usual: bytes that close the first bucket, and the others.
    """
    buckets: list[Bucket] = []
    filled: list[int] = []
    size = 0
    for row in rows:
        if not sizes[row]:
            continue
        filled.append(row)
        size += int(sizes[row])
        if size >= (usual if buckets else first):
            buckets.append(Bucket(tuple(filled), size))
            filled, size = [], 0
    return [*buckets, Bucket(tuple(filled), size)] if filled else buckets
