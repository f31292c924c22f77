"""Each fault model against what it does to numbers worked out by hand."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paracosm.errors import InputError
from paracosm.faults.models import (
    BitFlip,
    DataFault,
    ExponentFlip,
    Shuffle,
    SignFlip,
    Stale,
    Stop,
    UniformPerturbation,
)

MODELS: list[DataFault] = [
    UniformPerturbation(-100, 100),
    BitFlip((0, 63)),
    SignFlip(),
    ExponentFlip(),
    Shuffle(),
]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bits_of(value: float) -> int:
    """Return the 64 bits of a double as an integer, through its bytes."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


@pytest.mark.parametrize(
    ("bit", "before", "after"),
    [
        (52, 1.0, 0.5),  # the exponent of 1 is 1023, odd: its lowest bit falls
        (52, 2.0, 4.0),  # and that of 2 is 1024: it rises
        (51, 1.0, 1.5),
        (50, 1.0, 1.25),
        (0, 1.0, 1.0 + 2.0**-52),
        (0, 0.0, 5e-324),
        (61, 1.0, 2.0**-512),
        (62, 1.0, math.inf),
        (62, 2.0, 0.0),
        (63, 3.0, -3.0),
    ],
)
def test_a_flipped_bit_by_hand(bit: int, before: float, after: float) -> None:
    values = np.array([7.0, before, 7.0])
    touched = BitFlip((bit, bit)).corrupt(values, np.array([1]), rng())
    assert values.tolist() == [7.0, after, 7.0]
    assert touched.tolist() == [1]


def test_a_flip_may_give_nan_and_a_second_one_takes_it_back() -> None:
    values = np.array([1.5])  # 0x3ff8..., so all exponent bits set leave a mantissa behind
    BitFlip((62, 62)).corrupt(values, None, rng())
    assert np.isnan(values[0])
    BitFlip((62, 62)).corrupt(values, None, rng())
    assert values[0] == 1.5


@given(st.floats(width=64), st.integers(0, 63))
def test_a_flip_inverts_the_bit_that_struct_shows(value: float, bit: int) -> None:
    values = np.array([value])
    before = bits_of(values[0])
    BitFlip((bit, bit)).corrupt(values, None, rng())
    assert int(values.view(np.uint64)[0]) == before ^ (1 << bit)


@pytest.mark.parametrize(
    ("model", "first", "last"),
    [
        (BitFlip((0, 63)), 0, 63),
        (BitFlip((0, 51)), 0, 51),
        (BitFlip((10, 12)), 10, 12),
        (ExponentFlip(), 52, 62),
        (SignFlip(), 63, 63),
    ],
)
def test_the_bit_of_each_number_is_drawn_from_the_range(
    model: DataFault, first: int, last: int
) -> None:
    values = rng(1).normal(size=5000)
    before = values.view(np.uint64).copy()
    model.corrupt(values, None, rng(2))
    flipped = np.log2((values.view(np.uint64) ^ before).astype(float))
    assert set(flipped) == set(range(first, last + 1))  # one bit in each, and every bit somewhere
    share = 5000 / (last - first + 1)
    counts = np.bincount(flipped.astype(int))[first:]
    assert np.all(abs(counts - share) < 5.5 * math.sqrt(share))


def test_perturbation_adds_a_uniform_number_to_each_component() -> None:
    x = rng(3).normal(size=10_000)
    values = x.copy()
    touched = UniformPerturbation(-100, 100).corrupt(values, None, rng(4))
    added = values - x
    assert touched.tolist() == list(range(10_000))
    # Among 10,000 draws none comes within 0.5 of an end with probability exp(-25).
    assert -100 < added.min() < -99.5
    assert 99.5 < added.max() < 100
    assert abs(added.mean()) < 5 * 200 / math.sqrt(12 * 10_000)
    assert added.var() == pytest.approx(200**2 / 12, rel=0.05)
    assert len(np.unique(added)) > 9_990


def test_perturbation_of_the_widest_range_does_not_overflow() -> None:
    largest = float(np.finfo(float).max)
    values = np.zeros(100)
    UniformPerturbation(-largest, largest).corrupt(values, None, rng())
    assert np.isfinite(values).all()
    assert (values > 1e307).any()
    assert (values < -1e307).any()


def test_shuffle_permutes_the_chosen_components_among_themselves() -> None:
    values = np.arange(100.0)
    rows = np.arange(20, 60)
    Shuffle().corrupt(values, rows, rng())
    assert sorted(values[rows]) == list(range(20, 60))
    assert (values[rows] != rows).sum() > 30
    outside = np.r_[0:20, 60:100]
    assert np.array_equal(values[outside], outside)


@pytest.mark.parametrize("model", MODELS, ids=str)
@given(
    values=arrays(float, st.integers(1, 20), elements=st.floats(-1e3, 1e3)),
    data=st.data(),
    seed=st.integers(0, 9),
)
def test_only_the_touched_change_and_a_seed_repeats(
    model: DataFault, values: np.ndarray, data: st.DataObject, seed: int
) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(values) - 1)))
    rows = np.array(sorted(chosen), dtype=np.int64)
    once, again = values.copy(), values.copy()
    touched = model.corrupt(once, rows, rng(seed))
    model.corrupt(again, rows, rng(seed))
    assert once.tobytes() == again.tobytes()
    assert set(touched.tolist()) == chosen
    others = np.setdiff1d(np.arange(len(values)), touched)
    assert once[others].tobytes() == values[others].tobytes()


def test_processor_faults_last() -> None:
    assert Stop().duration == math.inf
    assert Stop(30).duration == 30
    assert Stale(20).duration == 20


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: UniformPerturbation(1, 1), "low .1. must be below high .1."),
        (lambda: UniformPerturbation(-math.inf, 1), "finite"),
        (lambda: UniformPerturbation(math.nan, 1), "finite"),
        (lambda: BitFlip((52, 64)), "bits 0 to 63, not 64"),
        (lambda: BitFlip((52, 51)), r"lower bit first, 51\.\.52"),
        (lambda: Stop(0), "stop: duration must be above 0, not 0"),
        (lambda: Stale(math.nan), "stale: duration must be above 0"),
    ],
)
def test_models_refuse_what_cannot_be(build: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build()  # type: ignore[operator]
