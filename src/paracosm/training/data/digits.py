"""The handwritten digits that scikit-learn ships: 1797 images of 8x8 pixels, 10 classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from paracosm.errors import InputError, require
from paracosm.training.data.dataset import DataSet

__all__ = ["digits"]

TEST_EXAMPLES = 360
SPLIT_SEED = 0


def digits(data_dir: Path | None = None) -> DataSet:
    """Load the digits as float32 images of shape (1, 8, 8) in [0, 1] (pixels / 16).

    The split is fixed: a permutation drawn by NumPy's PCG64 with seed 0; its first 360 examples
    are the test set, the other 1437 the training set.

    Raises:
        MissingExtraError: scikit-learn is not installed.
        InputError: a data folder was given.
    """
    if data_dir is not None:
        raise InputError("the digits come with scikit-learn: they take no data folder")
    bunch = require("sklearn.datasets", "torch", 'the data set "digits"').load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(bunch.target))
    images = torch.from_numpy((bunch.images[order] / 16).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(bunch.target[order].astype(np.int64))
    return DataSet(
        name="digits",
        train_x=images[TEST_EXAMPLES:].contiguous(),
        train_y=labels[TEST_EXAMPLES:].contiguous(),
        test_x=images[:TEST_EXAMPLES].contiguous(),
        test_y=labels[:TEST_EXAMPLES].contiguous(),
        classes=10,
    )
