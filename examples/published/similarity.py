"""Shards whose labels are similar to a degree, as in section 7 of Karimireddy et al. (2020)."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from paracosm.models import DataSet


def _parts(
    data: DataSet, clients: int, rng: np.random.Generator, share: float
) -> list[NDArray[np.int64]]:
    """Deal a share of the examples out at random, and cut the others, sorted by label, in order."""
    order = rng.permutation(len(data.train_x))
    count = round(share * len(order))
    similar, others = order[:count], order[count:]
    others = others[np.argsort(np.asarray(data.train_y)[others], kind="stable")]
    pairs = zip(np.array_split(similar, clients), np.array_split(others, clients), strict=True)
    return [np.concatenate(pair) for pair in pairs]


none = partial(_parts, share=0.0)
tenth = partial(_parts, share=0.1)
all_alike = partial(_parts, share=1.0)
