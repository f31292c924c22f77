"""Data sets by name, and those made by a user's function; all held in memory.

Data that come by client, each with a set of its own, are in `client_data.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError, check_installed, unknown
from paracosm.expression import bind, parse_expression, read_literal
from paracosm.factory import call_factory, is_reference
from paracosm.models.cifar10 import cifar10
from paracosm.models.registry import MODELS, built_in, written

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = ("train_x", "train_y", "test_x", "test_y")

_MOST_CLASSES = 1_000_000


class TrainingExamples(Protocol):
    """What gradients are computed on: examples by their numbers, wherever they are."""

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> int: ...  # 0 where the targets are no class labels

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    @property
    def classification(self) -> bool: ...

    @property
    def sample(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of some of them, one at least."""

    def train_examples(self, numbers: Ints) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of training examples, shape (numbers, ...)."""


@dataclass(frozen=True)
class DataSet:
    """Training and test examples; the first axis of every tensor counts examples."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int  # 0 where the targets are no class labels

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train_x.shape[1:])

    @property
    def classification(self) -> bool:
        return not self.train_y.is_floating_point()

    @property
    def sample(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of all training examples."""
        return self.train_x, self.train_y

    def train_examples(self, numbers: Ints) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of training examples, shape (numbers, ...)."""
        import torch

        indices = torch.from_numpy(numbers)
        return self.train_x.index_select(0, indices), self.train_y.index_select(0, indices)


@dataclass(frozen=True)
class _BuiltIn:
    """How to read a data set, as (train_x, train_y, test_x, test_y), and its properties."""

    read: Callable[[Path | None], tuple[Any, Any, Any, Any]]
    shape: tuple[int, ...]
    classes: int


def load_data(name: str, data_dir: Path | None = None) -> DataSet:
    """Load a data set, from its files in `data_dir` if it needs them.

    A user's function `package.module:factory` or `file.py:factory` may take `data_dir`, and returns
    a `DataSet`, or (train_x, train_y, test_x, test_y) as arrays or tensors. Floating-point inputs
    become float32. Integer targets are class labels 0, 1, ...; targets of another type are float32
    values to regress on.

    Raises:
        InputError: an unknown name, data that are missing or broken, or that cannot be trained on.
    """
    if is_reference(name):
        made = call_data_factory(name, data_dir)
        if is_by_client(made):
            raise by_client_refused(name)
        return data_set_of(name, made)
    check_data_set(name)
    if name not in DATA_SETS:
        raise by_client_refused(name)
    import torch

    about = DATA_SETS[name]
    train_x, train_y, test_x, test_y = map(torch.from_numpy, about.read(data_dir))
    return DataSet(name, train_x, train_y, test_x, test_y, about.classes)


def check_data_set(name: str) -> None:
    """Raise InputError if a name is neither a data set nor a reference."""
    if is_reference(name) or name in DATA_SETS:
        return
    if Path(name).suffix:  # a file
        function = f"{name if name.endswith('.py') else 'mydata.py'}:load"
        raise InputError(
            f'data set "{name}": data of your own come from a function, as in --data {function}, '
            "which returns (train_x, train_y, test_x, test_y)"
        )
    parse_client_set(name)


@dataclass(frozen=True)
class ClientSet:
    """A data set by client: its reader in `client_sets`, and its parameters in parentheses."""

    reader: str
    parameters: Mapping[str, float | str]  # with their values where none is given
    in_folder: bool  # whether it is read from `data_dir`
    shape: tuple[int, ...] | None = None  # of its examples, where every one has it


CLIENT_SETS: Mapping[str, ClientSet] = MappingProxyType(
    {
        "synthetic": ClientSet("synthetic", {"alpha": 1.0, "beta": 1.0}, False, (60,)),
        "leaf": ClientSet("leaf", {"shape": ""}, True),
        "huggingface": ClientSet(
            "hugging_face", {"inputs": "", "targets": "label", "client": ""}, True
        ),
    }
)
"""Name -> how it is read."""


def parse_client_set(name: str) -> tuple[ClientSet, dict[str, Any]]:
    """Read `synthetic(1, 1)`, `leaf`, ... as a set and the values of its parameters.

    Raises:
        InputError: there is none of that name, or it has no such parameter or value.
    """
    word, positional, named = parse_expression(name, "data set")
    if word not in CLIENT_SETS:
        raise unknown("data set", name, [*DATA_SETS, *CLIENT_SETS, "package.module:factory"])
    about = CLIENT_SETS[word]
    values: dict[str, Any] = dict(about.parameters)
    for key, text in bind(word, positional, named, about.parameters).items():
        if isinstance(values[key], str):
            values[key] = text
            continue
        value = read_literal(text)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            raise InputError(f"data set {word}: {key} must be a number from 0 to 100, not {text}")
        values[key] = float(value)
    return about, values


def shape_of(name: str) -> tuple[int, ...] | None:
    """Return the shape of a data set's examples; None where its name does not tell."""
    if is_reference(name):
        return None
    return DATA_SETS[name].shape if name in DATA_SETS else parse_client_set(name)[0].shape


def is_known_by_client(name: str) -> bool:
    """Whether the name alone says that data come by client."""
    if is_reference(name) or name in DATA_SETS:
        return False
    try:
        return parse_client_set(name)[1].get("client") != ""
    except InputError:  # which `check_data_set` says, where data are needed
        return False


def by_client_refused(name: str) -> InputError:
    return InputError(
        f'data set "{name}" comes by client, which only train can use: give data that are one set'
    )


def check_trainable(model: str, data: str) -> None:
    """Raise InputError unless a model can be trained on a data set, as far as their names tell."""
    check_data_set(data)
    if not is_reference(model):
        check_fits(model, data, shape_of(data))


def check_fits(model: str, data: str, shape: tuple[int, ...] | None) -> None:
    """Raise InputError if a built-in model cannot be trained on examples of a shape, if known."""
    about = built_in(model)
    if about.kind == "tokens":
        raise InputError(
            f"model {about.name} takes sequences of tokens, and train has images and vectors "
            f"({', '.join(DATA_SETS)} or your own): choose from {_models_for(None)}"
        )
    why = None if shape is None else about.obstacle(shape)
    if why is not None:
        fitting = (
            name for name, data_set in DATA_SETS.items() if about.obstacle(data_set.shape) is None
        )
        raise InputError(
            f'model {about.name} {why}, and "{data}" has {written(shape or ())}: choose other data '
            f"({', '.join(fitting)} or your own), or from {_models_for(shape)}"
        )


def _models_for(shape: tuple[int, ...] | None) -> str:
    trained = (model for model in MODELS.values() if model.kind != "tokens")
    return ", ".join(m.name for m in trained if shape is None or m.obstacle(shape) is None)


def _digits(data_dir: Path | None) -> tuple[Any, Any, Any, Any]:
    """Read scikit-learn's 1797 digits, [0, 1], (1, 8, 8): 360 for the test, drawn with seed 0."""
    if data_dir is not None:
        raise InputError("the digits come with scikit-learn: they take no data folder")
    package = check_installed("sklearn", "torch", 'the data set "digits"').origin
    assert package is not None
    # As load_digits reads it; importing scikit-learn would take longer than a second.
    file = Path(package).parent / "datasets" / "data" / "digits.csv.gz"
    rows = np.loadtxt(file, delimiter=",")
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    images = (rows[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = rows[:, 64].astype(np.int64)
    return images[360:], labels[360:], images[:360], labels[:360]


DATA_SETS: Mapping[str, _BuiltIn] = MappingProxyType(
    {"digits": _BuiltIn(_digits, (1, 8, 8), 10), "cifar10": _BuiltIn(cifar10, (3, 32, 32), 10)}
)
"""Name -> how it is read, and the shape and classes of its examples."""


def call_data_factory(reference: str, data_dir: Path | None, clients: int | None = None) -> Any:
    """Return what a user's factory makes, of those of the arguments that it takes.

    Raises:
        InputError: as `call_factory`, or the factory takes no `data_dir`, and there is one.
    """
    offered = {"data_dir": data_dir, "clients": clients}
    made, taken = call_factory("data set", reference, offered)
    if data_dir is not None and "data_dir" not in taken:
        raise InputError(f'data set "{reference}" takes no data_dir')
    return made


def is_by_client(made: Any) -> bool:
    """Whether a factory has returned data by client: a mapping or an iterable of the sets of
    clients, or (clients, test_x, test_y) with a test set of all.

    What a client has is a tuple or a `DataSet`, what a whole set has are arrays.
    """
    if isinstance(made, tuple) and len(made) == 3:
        return is_by_client(made[0])
    if isinstance(made, DataSet) or hasattr(made, "__array__"):
        return False
    if isinstance(made, Mapping | Iterator):
        return True
    if not hasattr(made, "__len__") or not hasattr(made, "__getitem__"):
        return isinstance(made, Iterable) and not isinstance(made, str | bytes)
    try:
        return len(made) > 0 and isinstance(made[0], tuple | DataSet)
    except Exception:  # of a class of the user's: reading it as arrays says what is wrong
        return False


def data_set_of(name: str, made: Any) -> DataSet:
    """Return what a factory has made as a data set.

    Raises:
        InputError: it is none, or cannot be trained on.
    """
    if isinstance(made, DataSet):
        made = (made.train_x, made.train_y, made.test_x, made.test_y)
    if not isinstance(made, Sequence) or len(made) != len(_NAMES):
        raise broken(
            name,
            f"returned {type(made).__name__}, not ({', '.join(_NAMES)}), and no data by client",
        )
    tensors = [tensor_of(name, part, array) for part, array in zip(_NAMES, made, strict=True)]
    return _checked(name, *tensors)


def tensor_of(reference: str, name: str, array: Any) -> Tensor:
    """Return what a factory has made as the tensor `name`: float32, or int64 of whole numbers.

    Raises:
        InputError: it is no array of finite numbers, or has no examples.
    """
    import torch

    try:
        first = array[0] if isinstance(array, list | tuple) and array else array
        if hasattr(first, "__array__") and not isinstance(first, torch.Tensor):
            array = np.asarray(array)  # of pandas, for example, or several arrays
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            array = array.copy()  # PyTorch would warn of it
        tensor = torch.as_tensor(array)
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            raise broken(reference, f"{name} is not a dense array of numbers")
        kind = torch.float32 if tensor.is_floating_point() else torch.int64
        tensor = tensor if tensor.is_complex() else tensor.detach().to(kind).contiguous()
    except InputError:
        raise
    except Exception as error:  # of a class of the user's
        raise broken(reference, f"{name} is not an array of numbers ({error})") from None
    if tensor.ndim == 0 or len(tensor) == 0:
        raise broken(reference, f"{name} has no examples")
    if torch.is_complex(tensor):
        raise broken(reference, f"{name} is complex")
    if not torch.isfinite(tensor).all():
        raise broken(reference, f"{name} contains NaN or infinite values")
    return tensor


def _checked(
    reference: str, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor
) -> DataSet:
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            raise broken(reference, f"{part}_x has {len(x)} examples, {part}_y {len(y)}")
    if train_x.shape[1:] != test_x.shape[1:]:
        raise broken(
            reference,
            f"training examples have shape {tuple(train_x.shape[1:])}, "
            f"test examples {tuple(test_x.shape[1:])}",
        )
    if train_y.dtype != test_y.dtype or train_y.shape[1:] != test_y.shape[1:]:
        raise broken(reference, "training and test targets differ in type or shape")
    classes = 0
    if not train_y.is_floating_point():
        classes = int(train_y.max()) + 1
        if int(min(train_y.min(), test_y.min())) < 0:
            raise broken(reference, "labels must not be negative")
        if classes > _MOST_CLASSES:
            raise broken(
                reference,
                f"label {classes - 1:,}: labels count classes from 0, {_MOST_CLASSES:,} at most",
            )
        if int(test_y.max()) >= classes:
            raise broken(
                reference,
                f"label {int(test_y.max())} is in the test set only "
                f"(training labels are 0 to {classes - 1})",
            )
    return DataSet(reference, train_x, train_y, test_x, test_y, classes)


def broken(reference: str, what: str) -> InputError:
    return InputError(f'data set "{reference}": {what}')
