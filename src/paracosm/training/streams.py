"""Independent random streams, one for each source of randomness and each worker.

A stream is keyed by what it is for and by the worker's index, exactly as `SeedSequence.spawn` would
key it, so that adding a worker or a source changes no other stream.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What a random stream is for; the numbers are part of what a seed means and never change."""

    MODEL = 0
    SHARDS = 1
    BATCHES = 2
    COMPUTE = 3
    SERVER = 4
    NEIGHBOURS = 5
    DROPOUT = 6


def generator(seed: int, stream: Stream, index: int = 0) -> np.random.Generator:
    """Return the generator of `stream` for the worker (or server) number `index`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, index)))


def torch_seed(seed: int, stream: Stream) -> int:
    """Return a seed for PyTorch's generators, drawn from `stream`."""
    return int(np.random.SeedSequence(seed, spawn_key=(stream,)).generate_state(1)[0])
