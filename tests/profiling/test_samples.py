"""Statistics of samples, and what makes two environments differ."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.graphs import Op
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import OpTiming, spread_of

HERE = Environment("cpu", "AMD EPYC, AVX512", "torch 2.13.0", 1, "malloc pinned", "flushed")


def test_the_spread_of_five_samples_by_hand() -> None:
    spread = spread_of([1.0, 2.0, 3.0, 4.0, 10.0])
    assert (spread.count, spread.mean, spread.minimum, spread.median) == (5, 4.0, 1.0, 3.0)
    assert spread.variance == 12.5  # (9 + 4 + 1 + 0 + 36) / 4
    assert (spread.p10, spread.p90) == pytest.approx((1.4, 7.6))
    assert spread.standard_error == pytest.approx(math.sqrt(12.5 / 5) / 4)


def test_one_sample_has_no_variance() -> None:
    assert spread_of([2.0]).variance == 0.0
    assert spread_of([2.0]).standard_error == 0.0


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=50))
def test_quantiles_are_in_order(samples: list[float]) -> None:
    spread = spread_of(samples)
    ordered = [spread.minimum, spread.p10, spread.median, spread.p90, max(samples)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(ordered))
    assert spread.mean == pytest.approx(float(np.mean(samples)))


def test_sets_of_samples_have_keys_of_their_own() -> None:
    one, other = (OpTiming(Op("aten.mm.default"), HERE, "cold", spread_of([1.0])) for _ in range(2))
    assert one.key != other.key


def test_an_environment_survives_its_text() -> None:
    assert Environment.from_json(HERE.to_json()) == HERE
    assert Environment.from_json(HERE.to_json()[:-1] + ',"clock":"3 GHz"}') == HERE


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"device":"cpu"}'])
def test_what_is_no_environment_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="holds no environment"):
        Environment.from_json(text)


def test_differences_are_named() -> None:
    other = Environment("cpu", HERE.hardware, "torch 2.12.0", 2, HERE.allocator, "flushed")
    assert HERE.differences(other) == [
        "framework torch 2.12.0, not torch 2.13.0",
        "threads 2, not 1",
    ]
    assert HERE.differences(HERE) == []
