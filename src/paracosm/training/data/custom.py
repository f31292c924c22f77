"""A data set that a function of the user's makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paracosm.errors import InputError
from paracosm.factory import call_factory
from paracosm.training.data.dataset import DataSet

__all__ = ["custom"]

_NAMES = ("train_x", "train_y", "test_x", "test_y")


def custom(reference: str, data_dir: Path | None = None) -> DataSet:
    """Return what the factory `package.module:factory` makes, checked.

    The factory returns a `DataSet`, or (train_x, train_y, test_x, test_y) as arrays or tensors.
    Floating-point inputs become float32. Integer targets are class labels 0, 1, ...; targets of
    another type are float32 values to regress on. It gets the argument `data_dir` if it has such
    a parameter.

    Raises:
        InputError: the factory fails, or what it returns cannot be trained on.
    """
    offered = {} if data_dir is None else {"data_dir": data_dir}
    made = call_factory("data set", reference, offered, required=True)
    if isinstance(made, DataSet):
        made = (made.train_x, made.train_y, made.test_x, made.test_y)
    if not isinstance(made, Sequence) or len(made) != len(_NAMES):
        raise _broken(reference, f"returned {type(made).__name__}, not ({', '.join(_NAMES)})")
    tensors = [_tensor(reference, name, array) for name, array in zip(_NAMES, made, strict=True)]
    return _checked(reference, *tensors)


def _tensor(reference: str, name: str, array: Any) -> Tensor:
    """Return an array as a tensor of float32 or, for labels, int64."""
    try:
        tensor = torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _broken(reference, f"{name} is no array of numbers ({error})") from None
    if tensor.ndim == 0 or len(tensor) == 0:
        raise _broken(reference, f"{name} has no examples")
    if torch.is_complex(tensor):
        raise _broken(reference, f"{name} is complex")
    if torch.is_floating_point(tensor):
        tensor = tensor.to(torch.float32)
        if not torch.isfinite(tensor).all():
            raise _broken(reference, f"{name} contains NaN or infinite values")
        return tensor.detach().contiguous()
    return tensor.to(torch.int64).contiguous()


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
    if train_y.dtype == torch.int64:
        classes = int(train_y.max()) + 1
        if int(min(train_y.min(), test_y.min())) < 0:
            raise _broken(reference, "labels must not be negative")
        if int(test_y.max()) >= classes:
            raise _broken(
                reference,
                f"label {int(test_y.max())} is in the test set only "
                f"(training labels are 0 to {classes - 1})",
            )
    return DataSet(reference, train_x, train_y, test_x, test_y, classes)


def _broken(reference: str, what: str) -> InputError:
    return InputError(f'data set "{reference}": {what}')
