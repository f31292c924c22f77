"""Data by client: what each client has is made when it is drawn, and dropped when others are.

A training example has the number client * 2^32 + its place among the client's, so that numbers need
no sizes of clients that nobody has looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.factory import describe_error, is_reference
from paracosm.models import client_sets
from paracosm.models.data_sets import (
    DATA_SETS,
    DataSet,
    broken,
    call_data_factory,
    data_set_of,
    is_by_client,
    load_data,
    parse_client_set,
    tensor_of,
)

if TYPE_CHECKING:
    from torch import Tensor

_PLACES = 32  # bits of an example's place among those of its client

_LOOKED_AT = 200
"""Clients, evenly spread, that tell shapes and classes, and from which evaluations take examples:
of more, the others are made as they are drawn."""

_KEPT = 256 * 2**20
"""Bytes of examples that are kept of clients that were drawn; others are made again."""


def load_training_data(
    name: str, data_dir: Path | None, clients: int, examples: int
) -> DataSet | ClientData:
    """Load what clients train on: a set that they divide, or data by client.

    A user's function `package.module:factory` or `file.py:factory` may take `data_dir` and
    `clients`, their number. It returns a set as `load_data` takes it; or a mapping, a sequence or
    an iterable of (x, y), (train_x, train_y, test_x, test_y) or a `DataSet` for each client; or
    these with one test set for all: (clients, test_x, test_y). Items of a mapping or a sequence are
    read when a client is drawn, and may be read again; an iterable is read at once.

    Args:
        name: of the data set, or a reference.
        data_dir: the folder of its files.
        clients: how many there are.
        examples: of each set, how many evaluations use at most.

    Raises:
        InputError: as `load_data`; there are not as many clients, one has no examples, or none has
            test examples.
    """
    if name in DATA_SETS:
        return load_data(name, data_dir)
    if is_reference(name):
        made = call_data_factory(name, data_dir, clients)
    else:
        about, values = parse_client_set(name)
        if (data_dir is not None) != about.in_folder:
            what = "is read from a folder: give --data-dir"
            raise InputError(
                f'data set "{name}" {what if about.in_folder else "takes no data folder"}'
            )
        reader: Callable[..., Any] = getattr(client_sets, about.reader)
        made = reader(data_dir, **values) if about.in_folder else reader(clients, **values)
    if not is_by_client(made):
        return data_set_of(name, made)
    test = None
    if isinstance(made, tuple) and len(made) == 3:
        made, *test = made
    count, source, classes = _source(name, made, clients)
    if count != clients:
        fewer = "only " if count < clients else ""
        raise InputError(
            f'data set "{name}" has {fewer}{count:,} clients, not {clients:,}: give --clients '
            f"{count} (or as many --workers)"
        )
    return ClientData(name, count, source, test, classes, examples)


def evaluation_sets(
    data: DataSet | ClientData, most: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return inputs and targets that evaluations use: of training and of test examples.

    They are `most` of each, evenly spread; of data by client those that were chosen as it was made.
    """
    if isinstance(data, ClientData):
        return data.sample, data.test
    training, test = (data.train_x, data.train_y), (data.test_x, data.test_y)
    return _at_most(most, *training), _at_most(most, *test)


def _at_most(most: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if len(x) <= most:
        return x, y
    chosen = _evenly_spread(len(x), most)
    return x[chosen], y[chosen]


class Examples(NamedTuple):
    """What one client has; no test examples where it was given none."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor | None
    test_y: Tensor | None


class ClientData:
    """Data of which each client has its own.

    Attributes:
        name: of the data set.
        classes: 0 where the targets are no class labels.
        input_shape: of one example.
        sample: inputs and targets of training examples of clients that are evenly spread.
        test: of test examples likewise, or the test set that was given for all.
        has_own_tests: whether clients have test examples.
        mean_examples: of a client's own test, or of its training examples without one.
    """

    def __init__(
        self,
        name: str,
        clients: int,
        source: Callable[[int], Any],  # makes what a client has
        test: list[Any] | None,  # inputs and targets of a test set of all, if there is one
        classes: int | None,  # where more are known than the clients show that are looked at
        examples: int,  # of each set, how many evaluations use at most
    ) -> None:
        self.name = name
        self._clients = clients
        self._source = source
        self._kept: OrderedDict[int, Examples] = OrderedDict()
        self._bytes = 0
        self._sizes = np.zeros(clients, np.int64)  # of shards; 0 where nobody has looked
        self.input_shape: tuple[int, ...] = ()
        self._target: tuple[Any, ...] = ()  # dtype and shape of an example's
        self.classes = classes or 0
        self._is_checked = False
        looked_at = [self.of(client) for client in _evenly_spread(clients, _LOOKED_AT)]
        self.has_own_tests = any(examples.test_x is not None for examples in looked_at)
        if test is None and not self.has_own_tests:
            raise broken(
                name,
                "no client has test examples: return (train_x, train_y, test_x, test_y) for each, "
                "or (clients, test_x, test_y)",
            )
        own_examples = [
            examples.test_x if self.has_own_tests else examples.train_x for examples in looked_at
        ]
        self.mean_examples = float(np.mean([len(x) for x in own_examples if x is not None]))
        self.sample = _joined(
            [(examples.train_x, examples.train_y) for examples in looked_at], examples
        )
        tests = [
            (examples.test_x, examples.test_y)
            for examples in looked_at
            if examples.test_x is not None and examples.test_y is not None
        ]
        if test is not None:
            tests = [self._pair("", "test", *test)]
        self.test = _joined(tests, examples)
        if self.classification:
            targets = [examples.train_y for examples in looked_at] + [y for _, y in tests]
            self.classes = max(self.classes, 1 + max(int(y.max()) for y in targets))
        self._is_checked = True

    def __len__(self) -> int:
        return self._clients

    @property
    def classification(self) -> bool:
        return not self.sample[1].is_floating_point()

    def of(self, client: int) -> Examples:
        """Return what a client has, made now unless it is at hand.

        Raises:
            InputError: it cannot be made, has no examples, or others than clients before; the
                message names the client.
        """
        data = self._kept.get(client)
        if data is not None:
            self._kept.move_to_end(client)
            return data
        data = self._kept[client] = self._made(client)
        self._sizes[client] = len(data.train_x)
        self._bytes += _bytes(data)
        while self._bytes > _KEPT and len(self._kept) > 1:
            self._bytes -= _bytes(self._kept.popitem(last=False)[1])
        return data

    def __getitem__(self, client: int) -> Ints:
        """Return the numbers of a client's training examples."""
        return (client << _PLACES) + np.arange(self.size_of(client))

    def size_of(self, client: int) -> int:
        """Return how many training examples a client has."""
        return int(self._sizes[client]) or len(self.of(client).train_x)

    @cached_property
    def sizes(self) -> Ints:
        """The training examples of all clients, each of whom is made for it."""
        return np.array([self.size_of(client) for client in range(self._clients)])

    @property
    def smallest(self) -> int:
        """The examples of the smallest shard, of clients that were made so far."""
        return int(self._sizes[self._sizes > 0].min())

    def train_examples(self, numbers: Ints) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of training examples, shape (numbers, ...)."""
        import torch

        owners = numbers >> _PLACES
        if len(numbers) and owners[0] == owners[-1] and (owners == owners[0]).all():
            return self._own(int(owners[0]), numbers)
        parts = np.split(numbers, np.flatnonzero(np.diff(owners)) + 1)
        chosen = [self._own(int(part[0] >> _PLACES), part) for part in parts if len(part)]
        if not chosen:
            return self.sample[0][:0], self.sample[1][:0]
        inputs, targets = zip(*chosen, strict=True)
        return torch.cat(inputs), torch.cat(targets)

    def _own(self, client: int, numbers: Ints) -> tuple[Tensor, Tensor]:
        import torch

        examples = self.of(client)
        places = torch.from_numpy(numbers & ((1 << _PLACES) - 1))
        return examples.train_x.index_select(0, places), examples.train_y.index_select(0, places)

    def _made(self, client: int) -> Examples:
        who = f"client {client}"
        try:
            made = self._source(client)
        except InputError:
            raise
        except Exception as error:  # of the user's own code
            raise broken(self.name, f"{who} failed: {describe_error(error)}") from error
        if isinstance(made, DataSet):
            made = (made.train_x, made.train_y, made.test_x, made.test_y)
        if not isinstance(made, tuple | list) or len(made) not in (2, 4):
            raise broken(
                self.name,
                f"{who} has {type(made).__name__}, not (x, y) or (train_x, train_y, test_x, "
                "test_y)",
            )
        train_x, train_y = self._pair(f"{who}: ", "train", made[0], made[1])
        if len(made) == 2 or _is_empty(made[2]):
            return Examples(train_x, train_y, None, None)
        return Examples(train_x, train_y, *self._pair(f"{who}: ", "test", made[2], made[3]))

    def _pair(self, who: str, part: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        inputs = tensor_of(self.name, f"{who}{part}_x", x)
        targets = tensor_of(self.name, f"{who}{part}_y", y)
        self._check(f"{who}{part}", inputs, targets)
        return inputs, targets

    def _check(self, where: str, x: Tensor, y: Tensor) -> None:
        """Raise InputError unless examples are like those before."""
        if len(x) != len(y):
            raise broken(self.name, f"{where} has {len(x)} inputs and {len(y)} targets")
        shape, target = tuple(x.shape[1:]), (y.dtype, tuple(y.shape[1:]))
        if not self._target:
            self.input_shape, self._target = shape, target
        if shape != self.input_shape:
            raise broken(
                self.name, f"{where} has inputs of shape {shape}, others {self.input_shape}"
            )
        if target != self._target:
            raise broken(self.name, f"{where} has targets of another type or shape than others")
        if y.is_floating_point():
            return
        if int(y.min()) < 0:
            raise broken(self.name, f"{where}: labels must not be negative")
        if self._is_checked and int(y.max()) >= self.classes:
            raise broken(
                self.name,
                f"{where} has label {int(y.max())}, and those of the {_LOOKED_AT} clients that "
                f"were looked at go to {self.classes - 1}: say how many there are by an attribute "
                "`classes` of the mapping, or give (clients, test_x, test_y)",
            )


def _source(name: str, made: Any, clients: int) -> tuple[int, Callable[[int], Any], int | None]:
    """Return how many clients there are, what makes one's data, and classes if they are known."""
    classes = getattr(made, "classes", None)
    if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int)):
        raise broken(name, f"classes must be a whole number, not {classes!r}")
    try:
        if isinstance(made, Mapping):
            keys = list(made)
            return len(keys), lambda client: made[keys[client]], classes
        if hasattr(made, "__getitem__") and hasattr(made, "__len__"):
            return len(made), made.__getitem__, classes
        # What comes without a length may have no end.
        read = list(islice(made, clients if isinstance(made, Iterator) else None))
    except InputError:
        raise
    except Exception as error:  # of the user's own code
        raise broken(name, f"reading its clients failed: {describe_error(error)}") from error
    return len(read), read.__getitem__, classes


def _evenly_spread(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return [int(place) for place in np.linspace(0, count - 1, most).round()]


def _joined(parts: list[tuple[Tensor, Tensor]], most: int) -> tuple[Tensor, Tensor]:
    """Return up to so many examples, evenly spread over those of all parts."""
    import torch

    sizes = [len(x) for x, _ in parts]
    chosen = np.array(_evenly_spread(sum(sizes), most))
    begins = np.concatenate([[0], np.cumsum(sizes)])
    some = []
    for begin, end, (x, y) in zip(begins, begins[1:], parts, strict=False):
        tensor = torch.from_numpy(chosen[(chosen >= begin) & (chosen < end)] - begin)
        some.append((x.index_select(0, tensor), y.index_select(0, tensor)))
    inputs, targets = zip(*some, strict=True)
    return torch.cat(inputs), torch.cat(targets)


def _is_empty(array: Any) -> bool:
    try:
        return array is None or len(array) == 0
    except TypeError:
        return False


def _bytes(own: Examples) -> int:
    return sum(part.untyped_storage().nbytes() for part in own if part is not None)
