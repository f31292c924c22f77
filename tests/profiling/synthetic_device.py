"""A device of known times: a roofline with tiles, a cache cliff and kernels of two speeds."""

from __future__ import annotations

import math

import numpy as np

from paracosm.graphs.graph import Op, TensorArgument, decode_arguments, encode_arguments
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import OpTiming, spread_of

__all__ = [
    "ENVIRONMENT",
    "TYPES",
    "add",
    "device_time",
    "draw",
    "matmul",
    "timings_of",
    "view",
]

ENVIRONMENT = Environment("cpu", "synthetic", "none 1.0", 1, "none", "kept")

LAUNCH = 5e-6
PEAK = 1e11
IN_CACHE, FROM_MEMORY, CACHE = 1e11, 2e10, 2**20

NOISE = 0.02  # standard deviation of a sample, relative


def matmul(m: int, k: int, n: int, dtype: str = "float32") -> Op:
    tensors = [TensorArgument((m, k), dtype), TensorArgument((k, n), dtype)]
    return Op(
        "dev.matmul.default",
        encode_arguments(tensors, {}),
        2 * m * k * n,
        4 * (m * k + k * n),
        4 * m * n,
    )


def add(rows: int, columns: int, alpha: float = 0.25) -> Op:
    tensor = TensorArgument((rows, columns), "float32")
    size = 4 * rows * columns
    return Op(
        "dev.add.Tensor", encode_arguments([tensor, tensor], {"alpha": alpha}), 0, 2 * size, size
    )


def convolution(batch: int, channels: int, filters: int, pixels: int, kernel: int) -> Op:
    image = TensorArgument((batch, channels, pixels, pixels), "float32")
    weight = TensorArgument((filters, channels, kernel, kernel), "float32")
    padding = [kernel // 2] * 2
    args = [image, weight, None, [1, 1], padding, [1, 1], False, [0, 0], 1]
    return Op(
        "dev.convolution.default",
        encode_arguments(args, {}),
        2 * batch * filters * channels * (pixels * kernel) ** 2,
        4 * (math.prod(image.shape) + math.prod(weight.shape)),
        4 * batch * filters * pixels**2,
    )


def view(rows: int) -> Op:
    return Op("dev.view.default", encode_arguments([TensorArgument((rows, 8), "float32")], {}))


def device_time(op: Op) -> float:
    """Return how long the device takes for `op`, seconds."""
    moved = op.bytes_read + op.bytes_written
    memory = moved / (IN_CACHE if moved < CACHE else FROM_MEMORY)
    return LAUNCH + max(op.flops / PEAK * _waste(op), memory)


def _waste(op: Op) -> float:
    """Return the work of whole tiles over the work that is asked for."""
    if op.name not in ("dev.matmul.default", "dev.convolution.default"):
        return 1.0
    args, _ = decode_arguments(op.arguments)
    first, second = args[0].shape, args[1].shape
    if op.name == "dev.matmul.default":
        rows, columns = first[0], second[1]
        return _tiled(rows, 64) * _tiled(columns, 64) / (rows * columns)
    slow = 1.0 if second[2] == 1 else 2.5
    return slow * _tiled(second[0], 32) / second[0] * _tiled(first[1], 16) / first[1]


def _tiled(size: int, tile: int) -> int:
    return math.ceil(size / tile) * tile


TYPES = ("dev.matmul.default", "dev.add.Tensor", "dev.convolution.default")


def draw(name: str, count: int, seed: int) -> list[Op]:
    """Return `count` distinct random ops of a type, of sizes as models have them."""
    random = np.random.default_rng(seed)

    def size(low: int, high: int) -> int:
        return round(2 ** random.uniform(math.log2(low), math.log2(high)))

    found: dict[Op, None] = {}
    while len(found) < count:
        match name:
            case "dev.matmul.default":
                op = matmul(size(16, 1024), size(32, 1024), size(16, 1024))
            case "dev.add.Tensor":
                op = add(size(16, 4096), size(16, 1024))
            case _:
                kernel = int(random.choice((1, 3)))
                op = convolution(size(1, 32), size(8, 256), size(8, 256), size(4, 32), kernel)
        found[op] = None
    return list(found)


def timings_of(ops: list[Op], seed: int = 0) -> list[OpTiming]:
    """Return timings of `ops`, of twenty samples each."""
    random = np.random.default_rng(seed)
    return [
        OpTiming(
            op,
            ENVIRONMENT,
            "cold",
            spread_of(device_time(op) * np.exp(NOISE * random.standard_normal(20))),
        )
        for op in ops
    ]
