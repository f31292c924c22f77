"""Data sets by name, and those made by a user's function; all held in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError, check_installed, unknown
from paracosm.factory import call_factory, is_reference
from paracosm.models.cifar10 import cifar10
from paracosm.models.registry import MODELS, built_in, written

if TYPE_CHECKING:
    from torch import Tensor

_NAMES = ("train_x", "train_y", "test_x", "test_y")

_MOST_CLASSES = 1_000_000


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
        return _custom(name, data_dir)
    check_data_set(name)
    import torch

    about = DATA_SETS[name]
    train_x, train_y, test_x, test_y = map(torch.from_numpy, about.read(data_dir))
    return DataSet(name, train_x, train_y, test_x, test_y, about.classes)


def check_data_set(name: str) -> None:
    """Raise InputError if a name is neither a data set nor a reference."""
    if not is_reference(name) and name not in DATA_SETS:
        raise unknown("data set", name, [*DATA_SETS, "package.module:factory"])


def check_trainable(model: str, data: str) -> None:
    """Raise InputError unless a model can be trained on a data set, as far as their names tell."""
    check_data_set(data)
    if not is_reference(model):
        check_fits(model, data, None if is_reference(data) else DATA_SETS[data].shape)


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
        fitting = (name for name, each in DATA_SETS.items() if about.obstacle(each.shape) is None)
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


def _custom(reference: str, data_dir: Path | None) -> DataSet:
    made, taken = call_factory("data set", reference, {"data_dir": data_dir})
    if data_dir is not None and not taken:
        raise InputError(f'data set "{reference}" takes no data_dir')
    if isinstance(made, DataSet):
        made = (made.train_x, made.train_y, made.test_x, made.test_y)
    if not isinstance(made, Sequence) or len(made) != len(_NAMES):
        raise _broken(reference, f"returned {type(made).__name__}, not ({', '.join(_NAMES)})")
    tensors = [_tensor(reference, name, array) for name, array in zip(_NAMES, made, strict=True)]
    return _checked(reference, *tensors)


def _tensor(reference: str, name: str, array: Any) -> Tensor:
    import torch

    try:
        first = array[0] if isinstance(array, list | tuple) and array else array
        if hasattr(first, "__array__") and not isinstance(first, torch.Tensor):
            array = np.asarray(array)  # of pandas, for example, or several arrays
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            array = array.copy()  # PyTorch would warn of it
        tensor = torch.as_tensor(array)
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            raise _broken(reference, f"{name} is not a dense array of numbers")
        kind = torch.float32 if tensor.is_floating_point() else torch.int64
        tensor = tensor if tensor.is_complex() else tensor.detach().to(kind).contiguous()
    except InputError:
        raise
    except Exception as error:  # of a class of the user's
        raise _broken(reference, f"{name} is not an array of numbers ({error})") from None
    if tensor.ndim == 0 or len(tensor) == 0:
        raise _broken(reference, f"{name} has no examples")
    if torch.is_complex(tensor):
        raise _broken(reference, f"{name} is complex")
    if not torch.isfinite(tensor).all():
        raise _broken(reference, f"{name} contains NaN or infinite values")
    return tensor


def _checked(
    reference: str, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor
) -> DataSet:
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            raise _broken(reference, f"{part}_x has {len(x)} examples, {part}_y {len(y)}")
    if train_x.shape[1:] != test_x.shape[1:]:
        raise _broken(
            reference,
            f"training examples have shape {tuple(train_x.shape[1:])}, "
            f"test examples {tuple(test_x.shape[1:])}",
        )
    if train_y.dtype != test_y.dtype or train_y.shape[1:] != test_y.shape[1:]:
        raise _broken(reference, "training and test targets differ in type or shape")
    classes = 0
    if not train_y.is_floating_point():
        classes = int(train_y.max()) + 1
        if int(min(train_y.min(), test_y.min())) < 0:
            raise _broken(reference, "labels must not be negative")
        if classes > _MOST_CLASSES:
            raise _broken(
                reference,
                f"label {classes - 1:,}: labels count classes from 0, {_MOST_CLASSES:,} at most",
            )
        if int(test_y.max()) >= classes:
            raise _broken(
                reference,
                f"label {int(test_y.max())} is in the test set only "
                f"(training labels are 0 to {classes - 1})",
            )
    return DataSet(reference, train_x, train_y, test_x, test_y, classes)


def _broken(reference: str, what: str) -> InputError:
    return InputError(f'data set "{reference}": {what}')
