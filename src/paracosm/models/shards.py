"""Which examples each worker draws from, and in which order."""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown

Indices = npt.NDArray[np.int64]

_DIRICHLET = re.compile(r"dirichlet\(\s*([^()\s]+)\s*\)")


def make_shards(
    targets: npt.ArrayLike, workers: int, scheme: str, rng: np.random.Generator
) -> list[Indices]:
    """Return for each worker the indices of the examples that it draws from.

    "shared" is the whole set for everybody, "iid" a random partition into shards of equal size (to
    one example), "dirichlet(alpha)" one that is skewed by label: the examples of each class are
    divided in proportions drawn from a symmetric Dirichlet distribution (Yurochkin et al.,
    "Bayesian Nonparametric Federated Learning of Neural Networks", 2019; after Hsu, Qi, Brown,
    "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    2019). The smaller alpha, the fewer classes a worker sees. A worker that is left with nothing
    gets one example of the largest shard.
    """
    labels = np.asarray(targets)
    examples = len(labels)
    if workers < 1:
        raise InputError(f"{workers} workers: at least one is needed")
    if scheme == "shared":
        everything = np.arange(examples)
        return [everything] * workers
    alpha = _alpha(scheme)
    if workers > examples:
        raise InputError(
            f'shards "{scheme}": {workers} workers for {examples} examples; '
            'each needs at least one (or use "shared")'
        )
    if alpha is None:
        return [np.sort(part) for part in np.array_split(rng.permutation(examples), workers)]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f'shards "{scheme}" need class labels as targets; use "iid"')
    return _by_label(labels, workers, alpha, rng)


def check_scheme(scheme: str) -> None:
    """Raise InputError if there is no such scheme."""
    if scheme != "shared":
        _alpha(scheme)


def _alpha(scheme: str) -> float | None:
    """Return the Dirichlet parameter of a scheme, or None for "iid"."""
    if scheme == "iid":
        return None
    match = _DIRICHLET.fullmatch(scheme.strip())
    if match is None:
        raise unknown("shards", scheme, ["shared", "iid", "dirichlet(0.5)"])
    try:
        alpha = float(match[1])
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise InputError(f'shards "{scheme}": the parameter must be a positive number')
    return alpha


def _by_label(
    labels: npt.NDArray[np.integer], workers: int, alpha: float, rng: np.random.Generator
) -> list[Indices]:
    """Divide each class among the workers in Dirichlet proportions; leave no worker without."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(workers, alpha))
        # A tiny alpha underflows every gamma variate and leaves 0/0: its limit is one owner.
        if not np.isfinite(shares).all():
            shares = np.eye(workers)[rng.integers(workers)]
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for index, part in enumerate(np.split(members, cuts)):
            owner[part] = index
    counts = np.bincount(owner, minlength=workers)
    for worker in np.flatnonzero(counts == 0).tolist():
        largest = int(counts.argmax())
        owner[np.flatnonzero(owner == largest)[0]] = worker
        counts[largest] -= 1
        counts[worker] = 1
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(counts)[:-1])


class BatchSampler:
    """Draws batches of indices from a shard, in epochs that are each shuffled anew.

    A batch that reaches the end of an epoch is filled from the next one. An epoch's order is drawn
    when its first example is needed, and held as int32: an idle sampler holds no memory.
    """

    __slots__ = ("_batch", "_indices", "_order", "_position", "_rng")

    def __init__(self, indices: Indices, batch: int, rng: np.random.Generator) -> None:
        if batch < 1:
            raise InputError(f"a batch of {batch}: at least one example is needed")
        if len(indices) == 0:
            raise InputError("a shard without examples")
        self._indices = indices
        self._batch = batch
        self._rng = rng
        self._order: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._position = 0

    def next(self) -> Indices:
        """Return the indices of the next batch, `batch` of them."""
        begin, end = self._position, self._position + self._batch
        if end <= len(self._order):
            self._position = end
            return self._indices[self._order[begin:end]]
        parts = [self._order[begin:]]
        missing = self._batch - len(parts[0])
        while missing > 0:
            self._order = self._rng.permutation(len(self._indices)).astype(np.int32)
            parts.append(self._order[:missing])
            self._position = len(parts[-1])
            missing -= self._position
        return self._indices[np.concatenate(parts)]
