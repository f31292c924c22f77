"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paracosm.errors import unknown
from paracosm.factory import is_reference
from paracosm.training.data.cifar10 import cifar10
from paracosm.training.data.custom import custom
from paracosm.training.data.dataset import DataSet
from paracosm.training.data.digits import digits

__all__ = ["DATA_SETS", "load_data"]

DATA_SETS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": digits,
    "cifar10": cifar10,
}


def load_data(name: str, data_dir: Path | None = None) -> DataSet:
    """Load a data set.

    Args:
        name: "digits", "cifar10" or `package.module:factory` (see `custom`).
        data_dir: the folder of the data set's archive, where it needs one.

    Raises:
        InputError: an unknown name, or data that are missing or broken.
        MissingExtraError: a package that the data set needs is not installed.
    """
    if is_reference(name):
        return custom(name, data_dir)
    if name not in DATA_SETS:
        raise unknown("data set", name, [*DATA_SETS, "package.module:factory"])
    return DATA_SETS[name](data_dir)
