"""The examples that each client draws from, and their order."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Codes, Floats, Ints
from paracosm.errors import InputError, unknown
from paracosm.factory import is_reference
from paracosm.models.own_shards import ID_FILES, is_id_file, shards_of_function, shards_of_ids
from paracosm.rng import generator

if TYPE_CHECKING:
    from paracosm.models.data_sets import DataSet

Indices = Ints

MOST_BATCH = 1_000_000  # examples of a minibatch

ALL = sys.maxsize
"""The examples of a minibatch that is a whole shard, however large: "all"."""

_SCHEMES = (
    *("shared", "iid", "dirichlet(0.5)", "classes(2)", "sizes(0.5)", "bootstrap(50)"),
    *("file.py:function", f"a file of client ids ({', '.join(ID_FILES)})"),
)
_WITH_PARAMETER = re.compile(r"(dirichlet|classes|sizes|bootstrap)\(\s*([^()\s]+)\s*\)")


class Shards:
    """The indices of the examples that each client draws from, computed on demand.

    Attributes:
        sizes: examples of each client's shard.
    """

    def __init__(self, sizes: Indices, shard: Callable[[int], Indices]) -> None:
        self.sizes = sizes
        self._shard = shard

    def __len__(self) -> int:
        return len(self.sizes)

    def size_of(self, client: int) -> int:
        return int(self.sizes[client])

    @property
    def smallest(self) -> int:
        """The examples of the smallest shard."""
        return int(self.sizes.min())

    def __getitem__(self, client: int) -> Indices:
        if not 0 <= client < len(self.sizes):
            raise IndexError(client)
        return self._shard(client)

    def __iter__(self) -> Iterator[Indices]:
        return map(self._shard, range(len(self.sizes)))


def shards_of(data: DataSet, clients: int, scheme: str, rng: np.random.Generator) -> Shards:
    """Return each client's examples: by a function of the user's, a file of client ids, or a scheme
    of `make_shards`.
    """
    if is_id_file(scheme):
        return _listed(shards_of_ids(Path(scheme), len(data.train_x), clients))
    if is_reference(scheme):
        return _listed(shards_of_function(scheme, data, clients, rng))
    return make_shards(data.train_y.numpy(), clients, scheme, rng)


def make_shards(
    targets: npt.ArrayLike, clients: int, scheme: str, rng: np.random.Generator
) -> Shards:
    """Return each client's examples, by one of these schemes.

    - "shared": the whole set for everybody.
    - "iid": a random partition into shards of equal size (to one example).
    - "dirichlet(alpha)": a partition that is skewed by label: the examples of each class are
      divided in proportions drawn from a symmetric Dirichlet distribution (Yurochkin et al.,
      "Bayesian Nonparametric Federated Learning of Neural Networks", 2019; after Hsu, Qi, Brown,
      "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
      Classification", 2019). The smaller alpha, the fewer classes a client sees. A client without
      examples gets one of the largest shard.
    - "classes(k)": the examples, sorted by label, are cut into k equal parts per client, of which
      each gets k at random, so that most see at most k classes (McMahan et al.,
      "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017, section
      3, with k = 2).
    - "sizes(sigma)": a random partition into shards whose sizes are proportional to exp(sigma Z),
      Z standard normal, by largest remainders.
    - "bootstrap(n)": n examples for each client, drawn with replacement; any number of clients can
      share a small set.

    Raises:
        InputError: there is no such scheme, it needs labels and has none, or a client would be left
            without examples.
    """
    labels = np.asarray(targets)
    examples = len(labels)
    if clients < 1:
        raise InputError(f"{clients} clients: at least one is needed")
    name, parameter = _parse(scheme)
    if name == "shared":
        everything = np.arange(examples)
        return Shards(np.full(clients, examples), lambda client: everything)
    if name == "bootstrap":
        return _drawn(examples, clients, int(parameter), rng)
    if clients > examples:
        raise _empty(scheme, examples, clients, examples)
    if name == "iid":
        begins = _equal_parts(examples, clients)
        return _cut(rng.permutation(examples), begins)
    if name == "sizes":
        sizes = _by_largest_remainder(examples, np.exp(parameter * rng.standard_normal(clients)))
        if not sizes.all():
            raise _empty(scheme, examples, clients, int(sizes.argmin()))
        return _cut(rng.permutation(examples), np.concatenate([[0], np.cumsum(sizes)]))
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f'shards "{scheme}" need class labels as targets; use "iid"')
    if name == "classes":
        parts = int(parameter)
        if parts * clients > examples:
            raise _empty(f"{scheme}", examples, clients, examples // parts)
        return _sorted_parts(labels, clients, parts, rng)
    return _dirichlet_parts(labels, clients, parameter, rng)


def check_scheme(scheme: str) -> None:
    """Raise InputError if there is no such scheme, or no such file of client ids."""
    if is_id_file(scheme):
        if not Path(scheme).is_file():
            raise InputError(f"shards: no such file: {scheme}")
    elif not is_reference(scheme):
        _parse(scheme)


def has_equal_sizes(scheme: str) -> bool:
    """Whether all clients have as many examples, to one, by the name of the scheme."""
    if is_own(scheme):
        return False
    return _parse(scheme)[0] in ("shared", "iid", "classes", "bootstrap")


def is_own(scheme: str) -> bool:
    """Whether a scheme is a function of the user's, or a file of client ids."""
    return is_id_file(scheme) or is_reference(scheme)


def _parse(scheme: str) -> tuple[str, float]:
    if scheme in ("shared", "iid"):
        return scheme, 0.0
    match = _WITH_PARAMETER.fullmatch(scheme.strip())
    if match is None:
        raise unknown("shards", scheme, _SCHEMES)
    name = match[1]
    try:
        parameter = float(match[2])
    except ValueError:
        parameter = math.nan
    counts = name in ("classes", "bootstrap")
    most = 10_000_000 if counts else 10 if name == "sizes" else math.inf
    is_whole = not counts or parameter.is_integer()
    if not (0 < parameter <= most and parameter < math.inf and is_whole):
        requirement = "whole number above 0" if counts else "positive number"
        limit = f", at most {most:,}" if most < math.inf else ""
        raise InputError(f'shards "{scheme}": the parameter must be a {requirement}{limit}')
    return name, parameter


def _empty(scheme: str, examples: int, clients: int, client: int) -> InputError:
    return InputError(
        f'shards "{scheme}": of {examples} examples for {clients} clients none is left for client '
        f'{client}; use fewer clients, "shared" or "bootstrap(50)"'
    )


def _equal_parts(examples: int, parts: int) -> Indices:
    """Return where parts of equal size begin, and the end: the first ones are one larger."""
    size, larger = divmod(examples, parts)
    index = np.arange(parts + 1, dtype=np.int64)
    begins: Indices = index * size + np.minimum(index, larger)
    return begins


def _listed(shards: Sequence[Indices]) -> Shards:
    return Shards(np.array([len(shard) for shard in shards]), shards.__getitem__)


def _cut(order: Indices, begins: Indices) -> Shards:
    return Shards(
        np.diff(begins), lambda client: np.sort(order[begins[client] : begins[client + 1]])
    )


def _drawn(examples: int, clients: int, size: int, rng: np.random.Generator) -> Shards:
    seed = int(rng.integers(2**63))
    return Shards(
        np.full(clients, size),
        lambda client: np.sort(generator(seed, client).integers(examples, size=size)),
    )


def _by_largest_remainder(whole: int, weights: Floats) -> Indices:
    """Divide a whole number in proportion to weights."""
    exact = whole * (weights / weights.sum())
    counts: Indices = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: whole - int(counts.sum())]] += 1
    return counts


def _sorted_parts(
    labels: npt.NDArray[np.integer], clients: int, parts: int, rng: np.random.Generator
) -> Shards:
    """Cut the examples, sorted by label, into parts, and deal `parts` of them to each client."""
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    begins = _equal_parts(len(labels), parts * clients)
    hands = rng.permutation(parts * clients).reshape(clients, parts)

    def shard(client: int) -> Indices:
        dealt = [order[begins[part] : begins[part + 1]] for part in hands[client].tolist()]
        return np.sort(np.concatenate(dealt))

    return Shards(np.diff(begins)[hands].sum(axis=1), shard)


def _dirichlet_parts(
    labels: npt.NDArray[np.integer], clients: int, alpha: float, rng: np.random.Generator
) -> Shards:
    """Divide each class among the clients in Dirichlet proportions; leave no client without."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        # A tiny alpha underflows every gamma variate and leaves 0/0: its limit is one owner.
        if not np.isfinite(shares).all():
            shares = np.zeros(clients)
            shares[rng.integers(clients)] = 1.0
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        begins = np.concatenate([[0], cuts, [len(members)]])
        owner[members] = np.repeat(np.arange(clients), np.diff(begins))
    counts = np.bincount(owner, minlength=clients)
    for client in np.flatnonzero(counts == 0).tolist():
        largest = int(counts.argmax())
        owner[np.flatnonzero(owner == largest)[0]] = client
        counts[largest] -= 1
        counts[client] = 1
    order = np.argsort(owner, kind="stable")
    return _cut(order, np.concatenate([[0], np.cumsum(counts)]))


class Sampler(Protocol):
    """A source of the minibatches of one shard, as indices of examples."""

    def next(self) -> Indices:
        """Return the next minibatch of a stream without end."""

    def epoch(self) -> list[Indices]:
        """Return the minibatches of one pass over the shard, the last of which may be short."""


class BatchSampler:
    """Draws minibatches from a shard, in epochs that are each shuffled anew.

    One of a stream that reaches the end of an epoch is filled from the next one, as after
    `repeat().batch()` of tf.data; it is never larger than the shard. An epoch's order is drawn when
    its first example is needed, and held as int32: an idle sampler holds no memory.
    """

    __slots__ = ("_batch", "_indices", "_order", "_position", "_rng")

    def __init__(self, indices: Indices, batch: int, rng: np.random.Generator) -> None:
        self._batch = _size(indices, batch)
        self._indices = indices
        self._rng = rng
        self._order: Codes = np.empty(0, dtype=np.int32)
        self._position = 0

    def next(self) -> Indices:
        begin, end = self._position, self._position + self._batch
        if end <= len(self._order):
            self._position = end
            return self._indices[self._order[begin:end]]
        rest = self._order[begin:]
        self._order = self._shuffled()
        self._position = self._batch - len(rest)
        both: Codes = np.concatenate([rest, self._order[: self._position]])
        return self._indices[both]

    def epoch(self) -> list[Indices]:
        order = self._indices[self._shuffled()]
        return [order[begin : begin + self._batch] for begin in range(0, len(order), self._batch)]

    def _shuffled(self) -> Codes:
        return self._rng.permutation(len(self._indices)).astype(np.int32)


class PoissonSampler:
    """Draws minibatches in which each example of a shard is by itself, with one probability.

    On average they are of the sizes of `BatchSampler`; single ones may be empty. Differential
    privacy by sampling is accounted for such minibatches (Abadi et al., "Deep Learning with
    Differential Privacy", 2016, section 3.1), not for those that are cut from shuffled epochs.
    """

    __slots__ = ("_batch", "_indices", "_rng")

    def __init__(self, indices: Indices, batch: int, rng: np.random.Generator) -> None:
        self._batch = _size(indices, batch)
        self._indices = indices
        self._rng = rng

    def next(self) -> Indices:
        return self._drawn(self._batch)

    def epoch(self) -> list[Indices]:
        return [*map(self._drawn, pass_sizes(len(self._indices), self._batch))]

    def _drawn(self, size: int) -> Indices:
        chances: Floats = self._rng.random(len(self._indices))
        return self._indices[np.flatnonzero(chances < size / len(self._indices))]


def pass_sizes(examples: int, batch: int) -> list[int]:
    """Return the sizes of the minibatches of one pass over so many examples."""
    whole, rest = divmod(examples, batch)
    return [batch] * whole + [rest] * (rest > 0)


def _size(indices: Indices, batch: int) -> int:
    """Return the size of a whole minibatch of a shard."""
    if batch < 1:
        raise InputError(f"a batch of {batch}: at least one example is needed")
    if MOST_BATCH < batch != ALL:
        raise InputError(f"a batch of {batch:,}: {MOST_BATCH:,} examples at most")
    if len(indices) == 0:
        raise InputError("a shard without examples")
    return min(batch, len(indices))
