"""Each codec against a plain program, its bounds, and the bits of its messages counted by hand."""

from __future__ import annotations

from typing import Any

import compressing as plain
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.training.compression.codecs import CODECS, QSGD, Codec, PowerSGD, parse_codec

SHAPES = ((8, 6), (6,), (3, 2, 2, 2))
SIZES = (48, 6, 24)
TOTAL = 78

few = settings(max_examples=25, deadline=None)
vectors = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).standard_normal(TOTAL).astype(np.float32)
)


def decoded(
    codec: Codec | str, x: Any, seed: int = 0, memory: dict[int, Any] | None = None
) -> np.ndarray:
    codec = parse_codec(codec) if isinstance(codec, str) else codec
    rng = np.random.default_rng(seed)
    kept = {} if memory is None else memory
    vector = torch.from_numpy(np.array(x, np.float32))
    (found,) = codec.compress([vector], SHAPES, rng, kept)
    assert found.dtype == torch.float32
    assert torch.equal(vector, torch.from_numpy(np.array(x, np.float32)))  # it is not changed
    return found.numpy()


def by_tensor(x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, np.cumsum(SIZES)[:-1])


@few
@given(vectors)
def test_top_k_keeps_the_largest(x: np.ndarray) -> None:
    assert np.array_equal(decoded("topk(0.1)", x), plain.top_k(x, 8))
    parts = [plain.top_k(part, k) for part, k in zip(by_tensor(x), (5, 1, 2), strict=True)]
    assert np.array_equal(decoded("topk(0.1, by_tensor=true)", x), np.concatenate(parts))


@few
@given(vectors, st.integers(0, 100))
def test_random_k_keeps_what_was_drawn(x: np.ndarray, seed: int) -> None:
    found = decoded("randomk(0.1)", x, seed)
    places = np.flatnonzero(found).tolist()
    assert len(places) == 8
    np.testing.assert_allclose(found, plain.random_k(x, places, unbiased=True), rtol=1e-6)
    same = decoded("randomk(0.1, feedback=true)", x, seed)
    assert np.array_equal(same, plain.random_k(x, places, unbiased=False))


@few
@given(vectors, st.integers(0, 100), st.integers(1, 9), st.integers(1, 100))
def test_qsgd_rounds_as_the_paper_says(x: np.ndarray, seed: int, s: int, bucket: int) -> None:
    rows = -(-TOTAL // bucket)
    uniform = np.random.default_rng(seed).random((rows, bucket), np.float32).ravel()
    expected = plain.qsgd(x, s, bucket, uniform)
    codec = QSGD(s, bucket)
    np.testing.assert_allclose(decoded(codec, x, seed), expected, rtol=1e-5, atol=1e-6)
    omega = min(bucket / s**2, bucket**0.5 / s)
    scaled = decoded(QSGD(s, bucket, feedback=True), x, seed)
    np.testing.assert_allclose(scaled, expected / (1 + omega), rtol=1e-5, atol=1e-6)


@few
@given(vectors)
def test_signs(x: np.ndarray) -> None:
    expected = np.concatenate([plain.scaled_sign(part) for part in by_tensor(x)])
    np.testing.assert_allclose(decoded("signsgd", x), expected, rtol=1e-5)
    assert np.array_equal(decoded("signsgd(feedback=false)", x), np.where(x < 0, -1, 1))


def test_a_vote_is_won_by_the_majority_and_a_tie_moves_nothing() -> None:
    votes = torch.tensor([[1.0, 1, -1, -1], [1, -1, -1, -1], [1, -1, 1, -1], [-1, 1, 1, -1]])
    plain_signs = parse_codec("signsgd(feedback=false)")
    assert plain_signs.aggregate(votes[:3].mean(0)).tolist() == [1, -1, -1, -1]
    assert plain_signs.aggregate(votes.mean(0)).tolist() == [1, 0, 0, -1]
    mean = votes.mean(0)
    assert parse_codec("signsgd").aggregate(mean) is mean


@few
@given(vectors, st.booleans())
def test_one_bit_sends_the_mean_of_either_sign_by_row(x: np.ndarray, is_positive: bool) -> None:
    x[:6] = np.abs(x[:6]) if is_positive else -np.abs(x[:6])  # a row without the other sign
    matrix, vector, kernel = by_tensor(x)
    expected = [plain.one_bit(matrix.reshape(8, 6)), plain.one_bit(vector[None])]
    expected.append(plain.one_bit(kernel.reshape(3, 8)))
    found = decoded("one-bit", x)
    np.testing.assert_allclose(found, np.concatenate([e.ravel() for e in expected]), rtol=1e-5)


@few
@given(vectors)
def test_halves(x: np.ndarray) -> None:
    x[:4] = [65519, 1e-8, 1 + 2**-11, -(1 + 3 * 2**-11)]  # largest, zero, ties to even
    assert np.array_equal(decoded("fp16", x), x.astype(np.float16).astype(np.float32))
    assert decoded("fp16", x)[:4].tolist() == [65504, 0, 1, -(1 + 2**-9)]
    x[4:6] = [1 + 2**-8, 1 + 3 * 2**-8]
    assert np.array_equal(decoded("bf16", x), plain.bfloat16(x))
    assert decoded("bf16", x)[4:6].tolist() == [1, 1 + 2**-6]


@few
@given(vectors, vectors)
def test_power_sgd_goes_on_from_the_factor_before(first: np.ndarray, second: np.ndarray) -> None:
    memory: dict[int, Any] = {}
    q = np.random.default_rng(0).standard_normal((6, 2), np.float32)
    for x in (first, second):
        _, q, expected = plain.power_sgd([x[:48].reshape(8, 6)], q)
        found = decoded(PowerSGD(2), x, memory=memory)
        np.testing.assert_allclose(found[:48], expected.ravel(), atol=1e-4)
        assert np.array_equal(found[48:54], x[48:54])


@few
@given(st.lists(vectors, min_size=2, max_size=4))
def test_power_sgd_averages_factors_in_an_all_reduce(xs: list[np.ndarray]) -> None:
    memory: dict[int, Any] = {}
    q = np.random.default_rng(0).standard_normal((6, 2), np.float32)
    for _ in range(2):
        matrices = [x[:48].reshape(8, 6) for x in xs]
        p, q, expected = plain.power_sgd(matrices, q)
        tensors = [torch.from_numpy(x) for x in xs]
        found = PowerSGD(2).compress(tensors, SHAPES, np.random.default_rng(0), memory)
        mean = sum(found) / len(found)
        np.testing.assert_allclose(mean[:48].numpy(), expected.ravel(), atol=1e-4)
        for each, matrix in zip(found, matrices, strict=True):
            own = p @ (p.T @ matrix)
            np.testing.assert_allclose(each[:48].numpy(), own.ravel(), atol=1e-4)


def test_power_sgd_of_zeros_is_zeros_and_of_low_rank_is_exact() -> None:
    assert not decoded("powersgd(2)", np.zeros(TOTAL)).any()
    rng = np.random.default_rng(3)
    low = rng.standard_normal((8, 1)) @ rng.standard_normal((1, 6))
    x = np.concatenate([low.ravel(), np.zeros(30)]).astype(np.float32)
    np.testing.assert_allclose(decoded("powersgd(2)", x), x, atol=1e-5)


DELTA = {  # of the contraction, where there is one for all vectors
    "topk(0.1)": 8 / 78,
    "topk(0.1, by_tensor=true)": 2 / 24,
    "signsgd": 1 / 48,  # |x|_1 >= |x|_2, of the largest tensor
    "one-bit": 0.0,
    "powersgd(2)": 0.0,
    "fp16": 0.99,
    "bf16": 0.99,
}


@few
@given(vectors, st.sampled_from(sorted(DELTA)))
def test_what_is_left_out_is_smaller_than_what_there_was(x: np.ndarray, codec: str) -> None:
    left = np.square(x - decoded(codec, x)).sum()
    assert left <= (1 - DELTA[codec]) * np.square(x).sum() * (1 + 1e-5)


def test_top_k_on_equal_numbers_is_the_worst_case_of_its_bound() -> None:
    left = np.ones(TOTAL) - decoded("topk(0.1)", np.ones(TOTAL))
    assert np.square(left).sum() == pytest.approx((1 - 8 / 78) * TOTAL)


RUNS = 2000


@pytest.mark.parametrize(
    ("codec", "omega"), [("randomk(0.1)", 78 / 8 - 1), ("qsgd(levels=2, bucket=16)", 2.0)]
)
def test_unbiased_codecs_are_right_in_the_mean(codec: str, omega: float) -> None:
    x = np.random.default_rng(1).standard_normal(TOTAL).astype(np.float32)
    drawn = np.stack([decoded(codec, x, seed) for seed in range(RUNS)])
    # Each mean is off by its standard error: five of them are passed once in 10^6.
    error = drawn.std(0) / RUNS**0.5
    assert (np.abs(drawn.mean(0) - x) <= 5 * error + 1e-6).all()
    assert np.square(drawn - x).sum(1).mean() <= omega * np.square(x).sum() * 1.05
    with_feedback = codec.replace(")", ", feedback=true)")
    scaled = np.stack([decoded(with_feedback, x, seed) for seed in range(200)])
    left = np.square(scaled - x).sum(1).mean()
    assert left <= (1 - 1 / (1 + omega)) * np.square(x).sum() * 1.02


BITS = {
    # 8 of 78 numbers, each with 32 bits and one of 78 places (7 bits)
    "topk(0.1)": (8 * (32 + 7),),
    # 5 of 48 (6 bits), 1 of 6 (3 bits), 2 of 24 (5 bits)
    "topk(0.1, by_tensor=true)": (5 * 38 + 35 + 2 * 37,),
    "randomk(0.1)": (8 * 32 + 64,),
    # a sign and 3 bits for the levels 0..7; 5 buckets of 16, the last one of 14
    "qsgd(levels=7, bucket=16)": (78 * 4 + 5 * 32,),
    # 2 bits for the levels 0..2
    "qsgd(levels=2)": (78 * 3 + 32,),
    "signsgd": (78 + 3 * 32,),
    "signsgd(feedback=false)": (78,),
    # rows: 8 of the matrix, 1 of the vector, 3 of the kernel
    "one-bit": (78 + 12 * 64,),
    # P is 8 x 2 and 3 x 2, and the vector goes with it; Q is 6 x 2 and 8 x 2
    "powersgd(2)": (32 * (16 + 6 + 6), 32 * (12 + 16)),
    # rank 3 is too much for 3 x 8: 3 * 11 > 24
    "powersgd(3)": (32 * (24 + 6 + 24), 32 * 18),
    "fp16": (78 * 16,),
    "bf16": (78 * 16,),
}


@pytest.mark.parametrize("codec", sorted(BITS))
def test_messages_have_the_bits_that_are_counted_by_hand(codec: str) -> None:
    assert parse_codec(codec).bits(SHAPES) == BITS[codec]


def test_every_codec_is_held_to_all_of_this() -> None:
    names = {name.partition("(")[0] for name in BITS}
    assert names == CODECS.keys()


@few
@given(
    st.sampled_from(
        [f"{name}(feedback=true)" for name in sorted(CODECS)]
        + ["topk(0.5, by_tensor=true)", "powersgd(1)", "signsgd(feedback=false)"]
    )
)
def test_a_codec_is_written_as_it_is_read(text: str) -> None:
    codec = parse_codec(text)
    assert parse_codec(str(codec)) == codec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topk(0)", "topk: share must be above 0 and below 1, got 0"),
        ("topk(2)", "topk: share must be above 0 and below 1, got 2"),
        ("randomk(-1)", "randomk: share must be above 0"),
        ("topk(many)", 'topk: share must be a number, got "many"'),
        ("top-k(0.1)", 'unknown codec "top-k"'),
        ("topk(k=3)", 'unknown parameter of topk "k"'),
        ("qsgd(levels=0)", "qsgd: levels must be at least 1, got 0"),
        ("powersgd(0)", "powersgd: rank must be at least 1, got 0"),
    ],
)
def test_what_no_codec_says_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_codec(text)
    assert message in str(caught.value)


def test_a_rank_above_every_matrix_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        PowerSGD(6).check(SHAPES)
    assert "no tensor gets smaller with rank 6: the widest matrix is 8 x 6" in str(caught.value)
