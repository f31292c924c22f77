"""Readers of data by client: synthetic(alpha, beta), LEAF's JSON, a folder of Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.data_files import read_json
from paracosm.errors import InputError, require
from paracosm.factory import describe_error
from paracosm.units import parse_whole

Array = npt.NDArray[Any]
Clients = list[tuple[Array, ...]]

_FEATURES, _CLASSES = 60, 10
_MOST_SYNTHETIC = 10_000  # clients, of some 450 examples each
_TRAINING_SHARE = 0.9


def synthetic(clients: int, alpha: float, beta: float) -> Clients:
    """Return the synthetic data of Li et al. for each client k.

    y = argmax(softmax(W_k x + b_k)) with W_k, b_k ~ N(u_k, 1), u_k ~ N(0, alpha), and
    x ~ N(v_k, Sigma) with v_k ~ N(B_k, 1), B_k ~ N(0, beta), Sigma diagonal, Sigma_jj = j^-1.2, for
    60 features and 10 classes; 50 + lognormal(4, 2) examples, of which 90 % are for training. Li,
    Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks",
    2020, section 5.1, after Shamir, Srebro, Zhang, "Communication-Efficient Distributed
    Optimization using an Approximate Newton-type Method", 2014. There are 30 clients in the paper;
    alpha and beta are standard deviations and 90 % are for training (the paper says 80 %) as in the
    authors' program, in whose order everything is drawn here, from NumPy's `RandomState(0)`. The
    files that they share are of another seed.
    """
    if clients > _MOST_SYNTHETIC:
        raise InputError(
            f"data set synthetic: at most {_MOST_SYNTHETIC:,} clients, which are all made at once, "
            f"not {clients:,}"
        )
    rng = np.random.RandomState(0)
    sizes = rng.lognormal(4, 2, clients).astype(int) + 50
    u = rng.normal(0, alpha, clients)
    b_of_inputs = rng.normal(0, beta, clients)
    centres = [rng.normal(b_of_inputs[client], 1, _FEATURES) for client in range(clients)]
    # By the diagonal itself: `multivariate_normal` would decompose it, with signs by the library.
    scales = np.sqrt(np.arange(1, _FEATURES + 1) ** -1.2)
    made: Clients = []
    for client, size in enumerate(sizes.tolist()):
        weights = rng.normal(u[client], 1, (_FEATURES, _CLASSES))
        biases = rng.normal(u[client], 1, _CLASSES)
        x = rng.standard_normal((size, _FEATURES)) * scales + centres[client]
        y = np.argmax(x @ weights + biases, axis=1)
        cut = int(_TRAINING_SHARE * size)
        x = x.astype(np.float32)
        made.append((x[:cut], y[:cut], x[cut:], y[cut:]))
    return made


def leaf(folder: Path, shape: str) -> Mapping[str, tuple[Array, ...]]:
    """Return the data of each user in a folder of LEAF, by name: its `train/*.json` and
    `test/*.json`, of Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018.

    Each file has "users" and, by user, lists "x" and "y" in "user_data". Inputs are lists of
    numbers; whole ones become floats.

    Args:
        folder: where it is.
        shape: of an example, such as "1x28x28"; empty for that of the lists.

    Raises:
        InputError: there are no such files, or one is of another form; the message names the user.
    """
    sizes = _sizes(shape)
    training, test = (_read_users(folder, part, sizes) for part in ("train", "test"))
    if not training:
        raise InputError(f"{folder}: no train/*.json: a folder of LEAF has train and test")
    strange = next((user for user in test if user not in training), None)
    if strange is not None:
        raise InputError(f'{folder}: user "{strange}" has test examples, but none in train/*.json')
    return {user: (*own, *test.get(user, ())) for user, own in training.items()}


def _sizes(shape: str) -> tuple[int, ...]:
    sizes = [parse_whole(size, 100_000) for size in shape.split("x")] if shape else []
    if not all(sizes):
        raise InputError(f'data set leaf: write shape=1x28x28, not "{shape}"')
    return tuple(size for size in sizes if size)


def _read_users(folder: Path, part: str, sizes: tuple[int, ...]) -> dict[str, tuple[Array, Array]]:
    examples: dict[str, tuple[Array, Array]] = {}
    for file in sorted((folder / part).glob("*.json")):
        content = read_json(file, "LEAF file")
        users = content.get("users") if isinstance(content, dict) else None
        data = content.get("user_data") if isinstance(content, dict) else None
        if not isinstance(users, list) or not isinstance(data, dict):
            raise InputError(f'{file}: no LEAF file: it lacks "users" or "user_data"')
        for user in map(str, users):
            if user in examples:
                raise InputError(f'{file}: user "{user}" is in several files, or twice in one')
            user_data = data.pop(user, None)
            if not isinstance(user_data, dict) or not user_data.get("x") or not user_data.get("y"):
                raise InputError(f'{file}: user "{user}" has no examples')
            inputs, targets = _arrays(file, user, user_data["x"], user_data["y"])
            if sizes:
                if inputs.size != len(inputs) * prod(sizes):
                    measured = "x".join(map(str, inputs.shape[1:]))
                    wanted = "x".join(map(str, sizes))
                    raise InputError(
                        f'{file}: user "{user}" has examples of {measured} numbers, not {wanted}'
                    )
                inputs = inputs.reshape(len(inputs), *sizes)
            examples[user] = inputs, targets
    return examples


def _arrays(file: Path, user: str, x: Any, y: Any) -> tuple[Array, Array]:
    try:
        inputs, targets = np.array(x), np.array(y)
    except ValueError:
        raise InputError(f'{file}: user "{user}" has examples of different lengths') from None
    for name, array in (("x", inputs), ("y", targets)):
        if array.dtype.kind not in "iufb":
            raise InputError(
                f'{file}: user "{user}" has texts as {name}: train takes numbers, so convert them, '
                "or write a factory of your own"
            )
    with np.errstate(over="ignore"):  # infinite values are refused where data are checked
        return inputs.astype(np.float32), targets


def hugging_face(folder: Path, inputs: str, targets: str, client: str) -> Any:
    """Return what `datasets.save_to_disk` has written with the splits "train" and "test".

    Args:
        folder: where it is.
        inputs, targets: columns; without `inputs` the only other one.
        client: the column of client ids, by which the training examples are divided, and those of
            the test where it has the column; empty where clients share one set.

    Images become channels x height x width in [0, 1], other inputs floats. Rows of a client are
    read when it is drawn.

    Raises:
        InputError: the folder has no such set, split or column.
        MissingExtraError: `datasets` is not installed.
    """
    library = require("datasets", "datasets", 'the data set "huggingface"')
    try:
        splits = library.load_from_disk(str(folder))
    except Exception as error:  # the library raises what it likes
        raise InputError(
            f"{folder}: no data set of Hugging Face: {describe_error(error)}"
        ) from None
    if not isinstance(splits, dict) or not {"train", "test"} <= splits.keys():
        raise InputError(f'{folder}: save a DatasetDict with the splits "train" and "test"')
    train, test = splits["train"], splits["test"]
    others = [name for name in train.column_names if name not in (targets, client)]
    if not inputs and len(others) == 1:
        inputs = others[0]
    needed = {"train": [inputs, targets, *([client] if client else [])], "test": [inputs, targets]}
    for split, names in needed.items():
        columns = splits[split].column_names
        for name in names:
            if name not in columns:
                problem = f'no column "{name}"' if name else "more than one column of inputs"
                raise InputError(
                    f"{folder}: {split} has {problem}: of {', '.join(columns)} say which is meant, "
                    "as in huggingface(inputs=image, targets=label, client=writer)"
                )
    own = _Columns(folder, inputs, targets)
    if not client:
        return (*own.read(train), *own.read(test))
    training = _Split(own, train, _places(folder, train[client]))
    if client not in test.column_names:
        return _ByClient(training, None), *own.read(test)
    places = _places(folder, test[client])
    strange = next((place for place in places if place not in training.places), None)
    if strange is not None:
        raise InputError(f'{folder}: client "{strange}" has rows in test, but none in train')
    return _ByClient(training, _Split(own, test, places))


class _Columns(NamedTuple):
    folder: Path
    inputs: str
    targets: str

    def read(self, rows: Any) -> tuple[Array, Array]:
        """Return inputs and targets of rows."""
        columns = rows.select_columns([self.inputs, self.targets]).with_format("numpy")[:]
        try:
            x, y = np.asarray(columns[self.inputs]), np.asarray(columns[self.targets])
        except ValueError:  # of several shapes
            x = y = np.array(["several shapes"])
        for name, array in ((self.inputs, x), (self.targets, y)):
            if array.dtype.kind not in "iufb":
                raise InputError(
                    f'{self.folder}: the column "{name}" has no numbers of one shape: convert it, '
                    "or write a factory of your own"
                )
        if x.dtype == np.uint8:  # images
            x = x.astype(np.float32) / 255
            x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x[:, None]
        return x.astype(np.float32), y


class _Split(NamedTuple):
    """Rows of a split, and those of each client."""

    columns: _Columns
    rows: Any
    places: Mapping[Any, Array]

    def of(self, client: Any) -> tuple[Array, ...]:
        places = self.places.get(client)
        return () if places is None else self.columns.read(self.rows.select(places))


class _ByClient(Mapping[Any, tuple[Array, ...]]):
    """What each client has, read when it is asked for."""

    def __init__(self, training: _Split, test: _Split | None) -> None:
        self._training = training
        self._test = test
        feature = training.rows.features[training.columns.targets]
        self.classes: int | None = getattr(feature, "num_classes", None)

    def __getitem__(self, client: Any) -> tuple[Array, ...]:
        test = () if self._test is None else self._test.of(client)
        return (*self._training.of(client), *test)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._training.places)

    def __len__(self) -> int:
        return len(self._training.places)


def _places(folder: Path, ids: Any) -> dict[Any, Array]:
    """Return the rows of each client, in the order of their ids."""
    listed = list(ids)
    lacking = next((row for row, value in enumerate(listed) if value is None), None)
    if lacking is not None:
        raise InputError(f"{folder}: row {lacking} has no client id")
    names, numbers = np.unique(np.array(listed), return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(numbers))[:-1])
    return dict(zip(names.tolist(), rows, strict=True))
