"""Shards cover the set exactly once; samplers visit every example once an epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler, make_shards

LABELS = np.repeat(np.arange(10), 100)


@settings(deadline=None)
@given(
    examples=st.integers(1, 200),
    share=st.floats(0, 1),
    scheme=st.sampled_from(["iid", "dirichlet(100)", "dirichlet(0.5)", "dirichlet(1e-9)"]),
    seed=st.integers(0, 2**32),
)
def test_shards_are_a_partition(examples: int, share: float, scheme: str, seed: int) -> None:
    workers = 1 + int(share * (examples - 1))
    rng = np.random.default_rng(seed)
    shards = make_shards(rng.integers(0, 5, examples), workers, scheme, rng)
    assert len(shards) == workers
    assert all(len(shard) > 0 for shard in shards)
    assert sorted(np.concatenate(shards)) == list(range(examples))


def test_iid_shards_are_equal_to_one_example() -> None:
    shards = make_shards(LABELS, 7, "iid", np.random.default_rng(0))
    assert {len(shard) for shard in shards} == {142, 143}


def test_shared_is_one_array_for_all() -> None:
    shards = make_shards(LABELS, 5000, "shared", np.random.default_rng(0))
    assert len(shards) == 5000
    assert all(shard is shards[0] for shard in shards)
    assert np.array_equal(shards[0], np.arange(1000))


def skew(alpha: float) -> float:
    """Mean total variation distance between a shard's labels and those of the whole set."""
    distances = []
    for seed in range(10):
        for shard in make_shards(LABELS, 8, f"dirichlet({alpha})", np.random.default_rng(seed)):
            shares = np.bincount(LABELS[shard], minlength=10) / len(shard)
            distances.append(abs(shares - 0.1).sum() / 2)
    return float(np.mean(distances))


def test_label_skew_grows_as_alpha_falls() -> None:
    skews = [skew(alpha) for alpha in (1000, 10, 1, 0.1, 0.001)]
    assert skews == sorted(skews)
    assert skews[0] < 0.05
    assert skews[-1] > 0.7


def test_dirichlet_class_shares_have_the_distributions_variance() -> None:
    """A share of a symmetric Dirichlet has variance (1/n)(1 - 1/n) / (n alpha + 1)."""
    shares = []
    for seed in range(200):
        shards = make_shards(LABELS, 4, "dirichlet(0.5)", np.random.default_rng(seed))
        shares += [np.bincount(LABELS[shard], minlength=10) / 100 for shard in shards]
    assert np.var(shares) == pytest.approx(0.25 * 0.75 / 3, rel=0.1)


def test_a_seed_decides_the_shards() -> None:
    def draw(seed: int) -> list[list[int]]:
        shards = make_shards(LABELS, 9, "dirichlet(0.3)", np.random.default_rng(seed))
        return [shard.tolist() for shard in shards]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("idd", 'unknown shards "idd": did you mean "iid"'),
        ("dirichlet(0)", "must be a positive number"),
        ("dirichlet(nan)", "must be a positive number"),
        ("dirichlet(many)", "must be a positive number"),
        ("dirichlet", 'did you mean "dirichlet'),
    ],
)
def test_unknown_schemes_are_refused(scheme: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_shards(LABELS, 2, scheme, np.random.default_rng(0))


def test_more_workers_than_examples_are_refused() -> None:
    with pytest.raises(InputError, match="1001 workers for 1000 examples"):
        make_shards(LABELS, 1001, "iid", np.random.default_rng(0))


def test_skew_needs_labels() -> None:
    with pytest.raises(InputError, match='need class labels as targets; use "iid"'):
        make_shards(np.zeros(10), 2, "dirichlet(1)", np.random.default_rng(0))


@given(
    shard=st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True),
    batch=st.integers(1, 100),
    batches=st.integers(1, 12),
)
def test_every_epoch_visits_every_example_once(shard: list[int], batch: int, batches: int) -> None:
    sampler = BatchSampler(np.array(shard), batch, np.random.default_rng(0))
    drawn = [sampler.next() for _ in range(batches)]
    assert all(len(indices) == batch and indices.dtype == np.int64 for indices in drawn)
    stream = np.concatenate(drawn)
    for begin in range(0, len(stream) - len(shard) + 1, len(shard)):
        assert sorted(stream[begin : begin + len(shard)]) == sorted(shard)
    rest = stream[len(stream) - len(stream) % len(shard) :]
    assert len(set(rest.tolist())) == len(rest)


def test_epochs_are_shuffled_anew() -> None:
    sampler = BatchSampler(np.arange(100), 100, np.random.default_rng(0))
    assert sampler.next().tolist() != sampler.next().tolist()


def test_an_unused_sampler_draws_nothing() -> None:
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    BatchSampler(np.arange(100), 10, rng)
    assert rng.bit_generator.state == before


def test_empty_batches_and_shards_are_refused() -> None:
    with pytest.raises(InputError, match="a batch of 0"):
        BatchSampler(np.arange(3), 0, np.random.default_rng(0))
    with pytest.raises(InputError, match="without examples"):
        BatchSampler(np.arange(0), 1, np.random.default_rng(0))
