"""The digits, against scikit-learn's own, and data sets by name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from paracosm.errors import InputError, MissingExtraError
from paracosm.models import load_data


def test_digits_are_scikit_learns_divided_by_16() -> None:
    data = load_data("digits")
    assert data.train_x.shape == (1437, 1, 8, 8)
    assert data.test_x.shape == (360, 1, 8, 8)
    assert (data.classes, data.input_shape, data.classification) == (10, (1, 8, 8), True)
    assert data.train_x.dtype == torch.float32
    assert data.train_y.dtype == torch.int64
    # Every image with its label is there exactly once.
    bunch = load_digits()
    ours = torch.cat([data.train_x, data.test_x]).flatten(1).numpy() * 16
    labels = torch.cat([data.train_y, data.test_y]).numpy()
    rows = sorted(map(tuple, np.column_stack([ours, labels]).tolist()))
    assert rows == sorted(map(tuple, np.column_stack([bunch.data, bunch.target]).tolist()))


def test_the_split_is_fixed() -> None:
    data = load_data("digits")
    order = np.random.default_rng(0).permutation(1797)
    assert np.array_equal(data.test_y, load_digits().target[order[:360]])
    # A tenth of the test set each, more or less: all digits are well represented.
    assert torch.bincount(data.test_y).min() >= 25


def test_digits_take_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="they take no data folder"):
        load_data("digits", tmp_path)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtraError, match=r'"digits" needs sklearn: .*paracosm\[torch\]'):
        load_data("digits")


def test_unknown_data_set_names_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown data set "digit": did you mean "digits"'):
        load_data("digit")
