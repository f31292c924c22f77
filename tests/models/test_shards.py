"""Shards cover the set exactly once; samplers visit every example once an epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from paracosm.errors import InputError
from paracosm.models.shards import ALL, BatchSampler, PoissonSampler, make_shards

LABELS = np.repeat(np.arange(10), 100)


@settings(deadline=None)
@given(
    examples=st.integers(1, 200),
    share=st.floats(0, 1),
    scheme=st.sampled_from(
        [
            *("iid", "dirichlet(100)", "dirichlet(0.5)", "dirichlet(1e-9)"),
            *("classes(1)", "sizes(0.01)"),
        ]
    ),
    seed=st.integers(0, 2**32),
)
def test_shards_are_a_partition(examples: int, share: float, scheme: str, seed: int) -> None:
    clients = 1 + int(share * (examples - 1))
    rng = np.random.default_rng(seed)
    shards = make_shards(rng.integers(0, 5, examples), clients, scheme, rng)
    assert len(shards) == clients
    assert [len(shard) for shard in shards] == shards.sizes.tolist()
    assert shards.sizes.min() > 0
    assert sorted(np.concatenate(list(shards))) == list(range(examples))


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
        ("classes(1.5)", "must be a whole number above 0"),
        ("bootstrap(0)", "must be a whole number above 0"),
        ("sizes(-1)", "must be a positive number"),
    ],
)
def test_unknown_schemes_are_refused(scheme: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_shards(LABELS, 2, scheme, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("clients", "scheme", "client"),
    [(1001, "iid", 1000), (501, "classes(2)", 500), (1001, "dirichlet(1)", 1000)],
)
def test_a_client_that_would_be_left_without_examples_is_named(
    clients: int, scheme: str, client: int
) -> None:
    message = f"of 1000 examples for {clients} clients none is left for client {client};"
    with pytest.raises(InputError, match=message):
        make_shards(LABELS, clients, scheme, np.random.default_rng(0))


def test_skewed_sizes_can_leave_a_client_without_examples() -> None:
    with pytest.raises(InputError, match=r"none is left for client \d+;"):
        make_shards(LABELS, 900, "sizes(3)", np.random.default_rng(0))


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_a_client_sees_as_many_classes_as_it_was_dealt_parts(classes: int) -> None:
    # 20 clients of 1000 examples: parts of 50 / classes examples divide each class of 100.
    shards = make_shards(LABELS, 20, f"classes({classes})", np.random.default_rng(1))
    seen = [len(set(LABELS[shard].tolist())) for shard in shards]
    assert max(seen) == classes
    assert {len(shard) for shard in shards} == {50}


def test_sizes_are_lognormal_but_for_rounding() -> None:
    shards = make_shards(np.zeros(10**6, int), 5000, "sizes(0.5)", np.random.default_rng(2))
    logarithms = np.log(shards.sizes)
    assert logarithms.std() == pytest.approx(0.5, rel=0.03)
    assert shards.sizes.sum() == 10**6


def test_a_bootstrap_serves_any_number_of_clients_and_draws_each_alike() -> None:
    shards = make_shards(LABELS, 10**6, "bootstrap(50)", np.random.default_rng(3))
    assert len(shards) == 10**6
    drawn = np.concatenate([shards[client] for client in range(2000)])
    assert len(drawn) == 2000 * 50
    # 100 expected draws of each example: chi-square over 1000 of them.
    counts = np.bincount(drawn, minlength=1000)
    assert ((counts - 100) ** 2 / 100).sum() == pytest.approx(999, abs=5 * (2 * 999) ** 0.5)
    assert np.array_equal(shards[7], shards[7])
    assert not np.array_equal(shards[7], shards[8])


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
    size = min(batch, len(shard))
    assert all(len(indices) == size and indices.dtype == np.int64 for indices in drawn)
    stream = np.concatenate(drawn)
    for begin in range(0, len(stream) - len(shard) + 1, len(shard)):
        assert sorted(stream[begin : begin + len(shard)]) == sorted(shard)
    rest = stream[len(stream) - len(stream) % len(shard) :]
    assert len(set(rest.tolist())) == len(rest)


@given(
    shard=st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True),
    batch=st.integers(1, 100) | st.just(ALL),
)
def test_a_pass_is_that_of_a_data_loader(shard: list[int], batch: int) -> None:
    """PyTorch's, which shuffles and keeps the last, short minibatch."""
    sampler = BatchSampler(np.array(shard), batch, np.random.default_rng(0))
    for _ in range(2):
        passed = sampler.epoch()
        loader = DataLoader(shard, min(batch, 1000), shuffle=True)  # type: ignore[arg-type]
        assert [len(each) for each in passed] == [len(each) for each in loader]
        assert sorted(np.concatenate(passed).tolist()) == sorted(shard)


@given(
    shard=st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True),
    batch=st.integers(1, 100) | st.just(ALL),
    seed=st.integers(0, 2**32),
)
def test_a_poisson_sample_has_each_example_at_most_once(
    shard: list[int], batch: int, seed: int
) -> None:
    sampler = PoissonSampler(np.array(shard), batch, np.random.default_rng(seed))
    for drawn in (sampler.next(), *sampler.epoch()):
        assert len(set(drawn.tolist())) == len(drawn)
        assert set(drawn.tolist()) <= set(shard)
    if batch >= len(shard):
        assert sorted(sampler.next().tolist()) == sorted(shard)


def test_examples_are_in_poisson_samples_by_themselves() -> None:
    """20 examples with probability 0.3, 4,000 times: how many, each, and each two together."""
    sampler = PoissonSampler(np.arange(20), 6, np.random.default_rng(1))
    there = np.zeros((4000, 20))
    for row in there:
        row[sampler.next()] = 1
    # The deviation of a share p of 4,000 is sqrt(p (1 - p) / 4000): 0.0072 and 0.0045.
    assert np.abs(there.mean(0) - 0.3).max() < 4 * 0.0072
    both = there.T @ there / 4000
    assert np.abs(both[~np.eye(20, dtype=bool)] - 0.09).max() < 4.5 * 0.0045
    # A binomial number: of deviation sqrt(20 0.3 0.7), known to 1 / sqrt(8000) of it.
    assert there.sum(1).std() == pytest.approx(4.2**0.5, rel=4 / 8000**0.5)


def test_a_pass_of_poisson_samples_is_one_pass_on_average() -> None:
    sampler = PoissonSampler(np.arange(25), 10, np.random.default_rng(2))
    sizes = np.array([[len(each) for each in sampler.epoch()] for _ in range(2000)])
    # Of 10, 10 and 5 of 25 examples; the widest has a deviation of sqrt(25 0.4 0.6) = 2.45.
    assert sizes.mean(0) == pytest.approx([10, 10, 5], abs=4 * 2.45 / 2000**0.5)


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
