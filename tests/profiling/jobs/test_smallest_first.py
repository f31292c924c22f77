"""Which parameter is on which server."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.profiling.jobs.job_profile import smallest_first


def test_each_parameter_goes_to_the_server_that_holds_least() -> None:
    # VGG-11 in the paper: the large layers come late, and one of them decides.
    assert smallest_first([1, 2, 3, 400, 16, 4], 2) == [0, 1, 0, 1, 0, 0]
    assert smallest_first([5, 5, 5], 3) == [0, 1, 2]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40), st.integers(1, 8))
def test_no_server_holds_more_than_the_least_and_one_parameter(
    sizes: list[float], servers: int
) -> None:
    held = np.bincount(smallest_first(sizes, servers), weights=sizes, minlength=servers)
    assert held.sum() == pytest.approx(sum(sizes))
    assert held.max() - held.min() <= max(sizes) * (1 + 1e-9)
