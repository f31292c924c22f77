"""Distinct rows, against NumPy's own."""

import numpy as np
import pytest

from paracosm.arrays import distinct_rows


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (7, 0), (50, 1), (200, 3), (3, 200)])
def test_distinct_rows_are_those_of_numpy(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).integers(-2, 2, shape)
    rows[:, : shape[1] // 2] = 5
    first, number = distinct_rows(rows)
    if not rows.size:
        assert first.tolist() == [0][: len(rows)]
        assert number.tolist() == [0] * len(rows)
        return
    _, expected, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected.tolist()
    assert number.tolist() == inverse.ravel().tolist()
