"""Data sets that a user's function makes: what is taken, and what is refused in one line."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from paracosm.errors import InputError
from paracosm.models import load_data

MODULE = """
import numpy as np
import pytest
from paracosm.models import DataSet
import torch

x = np.arange(24.0).reshape(6, 4)
y = np.array([0, 1, 2, 0, 1, 2])

def arrays():
    return x[:4], y[:4], x[4:], y[4:]

def broadcast():
    return np.broadcast_to(x[0], x.shape), y, x, y

def data_set():
    t = torch.from_numpy
    return DataSet("mine", t(x), t(y), t(x[:3]), t(y[:3]), 3)

def regression():
    return x, x.sum(1), x, x.sum(1)

def folder(data_dir):
    values = np.loadtxt(data_dir / "values.txt").reshape(2, 2)
    return values, [0, 1], values, [1, 0]

def fails():
    raise OSError("disk on\\nfire")

def short():
    return x, y[:5], x, y

def nan():
    return x * np.nan, y, x, y

def negative():
    return x, y - 1, x, y

def unseen():
    return x[:2], y[:2], x, y

def shapes():
    return x, y, x[:, :2], y

def kinds():
    return x, y, x, y / 2

def empty():
    return x[:0], y[:0], x, y

def words():
    return [["a"]], y, x, y

def sparse():
    return torch.tensor(x).to_sparse(), y, x, y

def boundless():
    return np.broadcast_to(x[:1, :1], (6, 10**14)), y, x, y

def classes():
    return x, y * 10**9, x, y

def read_only():
    fixed = x.copy()
    fixed.flags.writeable = False
    return fixed, y, x, y

def list_of_arrays():
    return list(x), y, x, y

def frame():
    import pandas
    return pandas.DataFrame(x[:4]), pandas.Series(y[:4], index=range(5, 9)), x[4:], y[4:]

class Own:
    def __len__(self):
        return 6
    def __getitem__(self, index):
        raise KeyError(index)

def own():
    return Own(), y, x, y

def shapes_only():
    return x, torch.tensor(y).to("meta"), x, y

def three():
    return x, y, x

def demanding(a, b, c):
    return x, y, x, y

constant = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_arrays_become_tensors() -> None:
    data = load_data("my_data:arrays")
    assert data.train_x.dtype == torch.float32
    assert data.train_y.tolist() == [0, 1, 2, 0]
    assert (data.input_shape, data.classes, len(data.test_x)) == ((4,), 3, 2)


@pytest.mark.parametrize("factory", ["read_only", "broadcast", "list_of_arrays"])
def test_an_array_is_taken_without_a_warning(factory: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_data(f"my_data:{factory}").train_x.shape == (6, 4)


def test_frames_of_pandas_are_taken() -> None:
    pytest.importorskip("pandas")
    data = load_data("my_data:frame")
    assert data.train_x.tolist() == load_data("my_data:arrays").train_x.tolist()


def test_a_data_set_is_taken_and_checked() -> None:
    data = load_data("my_data:data_set")
    assert (data.train_x.dtype, data.classes, len(data.test_x)) == (torch.float32, 3, 3)


def test_values_to_regress_on_are_no_classes() -> None:
    data = load_data("my_data:regression")
    assert (data.classes, data.classification) == (0, False)
    assert data.train_y.dtype == torch.float32


def test_the_data_folder_is_handed_on(tmp_path: Path) -> None:
    (tmp_path / "values.txt").write_text("1 2 3 4")
    assert load_data("my_data:folder", tmp_path).train_x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("fails", "failed: OSError: disk on fire"),
        ("short", "train_x has 6 examples, train_y 5"),
        ("nan", "train_x contains NaN or infinite values"),
        ("shapes_only", "train_y is not a dense array of numbers"),
        ("negative", "labels must not be negative"),
        ("unseen", "label 2 is in the test set only"),
        ("shapes", r"training examples have shape \(4,\), test examples \(2,\)"),
        ("kinds", "targets differ in type or shape"),
        ("empty", "train_x has no examples"),
        ("words", "train_x is not an array of numbers"),
        ("sparse", "train_x is not a dense array of numbers"),
        ("boundless", "train_x is not an array of numbers"),
        ("own", "train_x is not an array of numbers"),
        ("classes", "labels count classes from 0, 1,000,000 at most"),
        ("three", r"not \(train_x, train_y, test_x, test_y\)"),
        ("demanding", r"parameters \(a, b, c\); it is called, by name, with any of data_dir"),
        ("absent", 'my_data has no "absent"'),
        ("constant", 'my_data has a variable, not a function, "constant"'),
    ],
)
def test_what_cannot_be_trained_on_is_refused(factory: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_data(f"my_data:{factory}")
    assert "\n" not in str(caught.value)


def test_a_folder_that_the_factory_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes no data_dir"):
        load_data("my_data:arrays", tmp_path)


def test_a_missing_module_is_named() -> None:
    with pytest.raises(InputError, match="cannot import no_such_module: ModuleNotFoundError"):
        load_data("no_such_module:factory")


def test_an_incomplete_reference_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected package\.module:factory"):
        load_data("my_data:")
