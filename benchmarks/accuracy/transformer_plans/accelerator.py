"""How long the ops of a transformer take on a GPU, from published rates alone.

A matrix product takes its flops at the best rate that anybody has measured for one, over the share
of its multiprocessors that are busy: tiles of the result are dealt out to them in waves, and the
last wave is seldom full (NVIDIA, "Matrix Multiplication Background User's Guide", section "Wave
Quantization"). No op is faster than memory lets its bytes pass; all others take just that, at the
share of the peak that ops of their kind reach.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES, Graph, Op, TensorArgument, decode_arguments

__all__ = ["A100", "Accelerator", "durations_on"]

Floats = npt.NDArray[np.float64]

PRODUCTS = ("aten.mm.default", "aten.bmm.default")
TILES = ((256, 128), (128, 256), (128, 128))
"""Rows and columns of the tiles that cuBLAS computes most efficiently (the same guide, "Tile
Quantization")."""


@dataclass(frozen=True)
class Accelerator:
    """Rates of a GPU.

    Attributes:
        name: what it is called.
        product_rate: flops/s of the fastest matrix product that was measured.
        multiprocessors: their number.
        bandwidth: of its memory, bytes/s, as its data sheet has it.
        shares: of the bandwidth that an op reaches, by a part of its name; the first that fits.
        share: of all other ops.
        launch: seconds in which the host issues an op, while the device runs those before.
    """

    name: str
    product_rate: float
    multiprocessors: int
    bandwidth: float
    shares: Mapping[str, float]
    share: float
    launch: float = 0.0

    def seconds(self, op: Op) -> float:
        """Return how long an op takes, its launch being hidden behind the one before.

        Raises:
            InputError: a matrix product whose shapes are not known.
        """
        moved = op.bytes_read + op.bytes_written
        if op.name in PRODUCTS:
            rate = self.product_rate * self._busy(op)
            return max(op.flops / rate, moved / (self.share * self.bandwidth))
        share = next((value for part, value in self.shares.items() if part in op.name), self.share)
        return moved / (share * self.bandwidth)

    def _busy(self, op: Op) -> float:
        """Return the share of multiprocessors that a product keeps busy, by its best tiles."""
        tensors = decode_arguments(op.arguments)[0] if op.arguments else []
        if len(tensors) != 2 or not all(isinstance(tensor, TensorArgument) for tensor in tensors):
            raise InputError(f"{op.name}: a matrix product of unknown shapes")
        (*batch, rows, _), (*_, columns) = (tensor.shape for tensor in tensors)
        count = math.prod(batch)
        results: int = count * rows * columns
        return max(
            results / (self._waves(count, rows, columns, *tile) * math.prod(tile)) for tile in TILES
        )

    def _waves(self, count: int, rows: int, columns: int, height: int, width: int) -> int:
        """Return the slots for tiles that are taken up: whole waves over all multiprocessors."""
        tiles = count * math.ceil(rows / height) * math.ceil(columns / width)
        return math.ceil(tiles / self.multiprocessors) * self.multiprocessors


A100 = Accelerator(
    name="A100 SXM 80 GB",
    product_rate=271.2e12,
    multiprocessors=108,
    bandwidth=2039e9,
    shares={"layer_norm": 0.43, "softmax": 0.74, "dropout": 0.76, "copy_": 0.62},
    share=0.81,
    launch=13.3e-6,
)
"""Multiprocessors and bandwidth: NVIDIA's data sheet. The rate of products: 86.9 % of 312 Tflop/s,
the best of all shapes in half precision (Bekman, "Machine Learning Engineering", table of maximum
achievable matmul flops). Shares: medians over the forward passes in NeuSight's tables of training
on the A100 80 GB PCIe (1935 GB/s), of those that take more than 100 us; of norms and copies, which
all are shorter, more than 40 us. The mask of a dropout counts as a byte. Launch: what
the host takes for a kernel and the views before it, the median of these tables."""


def durations_on(accelerator: Accelerator, graph: Graph) -> Floats:
    """Return n seconds, one for each node of a graph; 0 for nodes that communicate."""
    moves = graph.resource == RESOURCES.index("communication")
    times = np.zeros(len(graph.ops))
    for code in np.unique(graph.op[~moves]).tolist():
        times[code] = accelerator.seconds(graph.ops[code])
    return np.where(moves, 0.0, times[graph.op])
