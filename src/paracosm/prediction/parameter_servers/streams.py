"""Random streams, one for each worker and each thing that is left to chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["worker_streams"]


def worker_streams(
    seed: int | Sequence[int], source: int, workers: int
) -> list[np.random.Generator]:
    """Return a stream for each worker, which is the same whatever the number of workers.

    Args:
        seed: and what else tells this use of it from others.
        source: what is left to chance, by its number.
        workers: how many.
    """
    root = np.random.SeedSequence(seed, spawn_key=(source,))
    return [np.random.default_rng(each) for each in root.spawn(workers)]
