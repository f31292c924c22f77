"""Compiled draws against the distributions' own, and the counter-based streams they are fed by."""

import math
import pickle

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from paracosm.rng import stream_keys
from paracosm.timing.compiled import (
    Draws,
    draw,
    gamma_quantile,
    gamma_table,
    normal_quantile,
    tabulate,
    uniform,
)
from paracosm.timing.distribution import Distribution, Scaled, Slowdown
from paracosm.timing.families import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    KernelDensity,
    LogKernelDensity,
    Lognormal,
    Normal,
    Recorded,
    Uniform,
    Weibull,
)

durations = st.floats(1e-9, 1e6)
shapes = st.floats(0.02, 1e5)
samples = st.lists(durations, min_size=1, max_size=20).map(tuple)
simple = st.one_of(
    st.builds(Constant, durations),
    st.builds(lambda low, width: Uniform(low, low + width), durations, durations),
    st.builds(Normal, durations, durations | st.just(0.0)),
    st.builds(Lognormal, durations, st.floats(0, 2)),
    st.builds(Exponential, durations),
    st.builds(Gamma, durations, shapes),
    st.builds(Weibull, durations, st.floats(0.2, 50)),
    st.builds(Empirical, samples),
    st.builds(KernelDensity, samples, st.none() | durations),
    st.builds(LogKernelDensity, samples, st.none() | st.floats(1e-3, 2)),
)
drawn = st.recursive(
    simple,
    lambda base: st.one_of(
        st.builds(Scaled, base, st.floats(0.01, 100)),
        st.builds(Slowdown, base, st.floats(0, 100), st.floats(0, 1)),
    ),
    max_leaves=4,
)
# All of the interval, both tails nearly to their last double.
UNIFORM = np.concatenate(
    [
        np.random.default_rng(0).random(500),
        2.0 ** -np.linspace(1.5, 52.9, 100),
        1 - 2.0 ** -np.linspace(1.5, 53, 100),
    ]
)


@numba.njit
def _draws(draws, row, uniforms):
    out = np.empty(uniforms.size)
    for index in range(uniforms.size):
        out[index] = draw(draws, row, uniforms[index], index)
    return out


@numba.njit
def one_draw(draws, row, uniform, index):
    return draw(draws, row, uniform, index)


@numba.njit
def _uniforms(keys, first, count):
    out = np.empty((keys.size, count))
    for stream in range(keys.size):
        for index in range(count):
            out[stream, index] = uniform(keys[stream], first + index)
    return out


@numba.njit
def _normal_quantiles(p):
    out = np.empty(p.size)
    for index in range(p.size):
        out[index] = normal_quantile(p[index])
    return out


@numba.njit
def _gamma_quantiles(table, u):
    out = np.empty(u.size)
    for index in range(u.size):
        out[index] = gamma_quantile(table, 0, table.size, u[index])
    return out


def assert_same(distribution, row, table):
    expected = distribution.from_uniform(UNIFORM)
    actual = _draws(table, row, UNIFORM)
    base = distribution
    while isinstance(base, Scaled | Slowdown):
        base = base.base
    rtol = 1e-9 if isinstance(base, Gamma) else 1e-12
    # Where a normal is truncated, a draw near 0 is the difference of two numbers of its size.
    size = max(expected.max(), base.from_uniform(UNIFORM).max())
    atol = 2e-15 * size if isinstance(base, Normal | KernelDensity) else 1e-300
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


@settings(max_examples=150, deadline=None)
@given(st.lists(drawn, min_size=1, max_size=4))
@example([Slowdown(KernelDensity((3.0, 2.0), None), 0.0, 1 - 2**-53)])
def test_draws_are_those_of_the_distributions(distributions):
    table = tabulate(distributions)
    for row, distribution in enumerate(distributions):
        assert_same(distribution, row, table)


@given(drawn)
@settings(deadline=None)
def test_the_ends_of_the_uniform_interval_give_finite_draws(distribution):
    draws = _draws(tabulate([distribution]), 0, np.array([2.0**-54, 1 - 2.0**-53]))
    assert np.all(np.isfinite(draws))
    assert np.all(draws >= 0)


def test_slowdowns_and_speeds_nest():
    # u = 0.05 is below 0.1, so slow, and becomes 0.5; that is not below 0.2 and becomes 0.375.
    nested = Slowdown(Scaled(Slowdown(Uniform(0, 8), 3, 0.2), 2), 10, 0.1)
    assert one_draw(tabulate([nested]), 0, 0.05, 0) == pytest.approx(8 * 0.375 / 2 * 10, rel=1e-15)
    # u = 0.145 is above 0.1 and becomes 0.05, which is below 0.2 and becomes 0.25.
    assert one_draw(tabulate([nested]), 0, 0.145, 0) == pytest.approx(8 * 0.25 * 3 / 2, rel=1e-14)


def test_a_slow_constant():
    table = tabulate([Slowdown(Constant(3.0), 10, 0.25), Constant(3.0)])
    assert [one_draw(table, 0, u, 0) for u in (0.1, 0.3)] == [30.0, 3.0]
    assert [one_draw(table, 1, u, 0) for u in (0.1, 0.3)] == [3.0, 3.0]


def test_recordings_are_replayed_by_index():
    table = tabulate(
        [
            Recorded((1.0, 3.0, 2.0)),
            Recorded((1.0, 3.0, 2.0), cycle=True),
            Scaled(Recorded((1.0, 3.0)), 2.0),
        ]
    )
    once, cycling, scaled = (_draws(table, row, np.full(5, 0.5)) for row in range(3))
    np.testing.assert_array_equal(once, [1, 3, 2, math.nan, math.nan])
    np.testing.assert_array_equal(cycling, [1, 3, 2, 1, 3])
    np.testing.assert_array_equal(scaled, [0.5, 1.5, math.nan, math.nan, math.nan])


def test_rows_and_indices_of_any_integer_type():
    table = tabulate([Recorded((1.0, 3.0, 2.0), cycle=True), Uniform(0.0, 4.0)])
    assert one_draw(table, np.int32(0), 0.5, np.uint64(4)) == 3.0
    assert one_draw(table, np.uint64(1), 0.5, np.int32(4)) == 2.0


def test_equal_samples_are_stored_once():
    measured = (1.0, 2.0, 4.0)
    equal = tuple(float(value) for value in "124")
    assert equal is not measured
    table = tabulate(
        [
            Empirical(measured),
            Empirical(equal),
            Scaled(Recorded(measured), 2.0),
            LogKernelDensity(equal, 0.1),
            KernelDensity(measured, 0.1),
            KernelDensity(equal, 0.1),
            KernelDensity(measured, 0.2),
        ]
    )
    assert table.values.size == 3 + 6 + 6  # a kernel needs two numbers
    assert table.first.tolist() == [0, 0, 0, 0, 3, 3, 9]
    assert table.count.tolist() == [3] * 7


def test_equal_gamma_shapes_share_their_polynomials():
    table = tabulate([Gamma(1 + row, 4.0) for row in range(5)])
    assert table.values.size == table.count[0]


def test_a_distribution_of_the_users_own_is_not_expressed():
    class Mine(Distribution):
        name = "mine"

        def from_uniform(self, uniform):
            return uniform

        def mean(self):
            return 0.5

    class Overridden(Normal):
        def from_uniform(self, uniform):
            return uniform

    for foreign in (Mine(), Overridden(1, 1)):
        assert tabulate([Constant(1), foreign]) is None
        assert tabulate([Scaled(foreign, 2), Constant(1)]) is None
        assert tabulate([Slowdown(foreign, 2, 0.5)]) is None


def test_nothing_and_many():
    assert tabulate([]).kind.size == 0
    table = tabulate([Normal(10.0, 3.0)] * 1000)
    assert isinstance(table, Draws)
    assert table.parameters.shape[0] == 1000
    assert pickle.loads(pickle.dumps(table)).kind.tolist() == table.kind.tolist()


def test_normal_quantile_against_scipy_to_the_last_digits():
    rng = np.random.default_rng(1)
    p = np.concatenate(
        [rng.random(50_000), 2.0 ** -rng.uniform(1, 1000, 20_000), 1 - 2.0 ** -np.arange(1.0, 54)]
    )
    expected = special.ndtri(p)
    np.testing.assert_allclose(_normal_quantiles(p), expected, rtol=2e-15, atol=1e-16)


@pytest.mark.parametrize("shape", [1e-4, 0.01, 0.2, 0.7, 1, 3.3, 40, 2500, 9e4])
def test_gamma_quantile_against_scipy(shape):
    expected = special.gammaincinv(shape, UNIFORM) / shape
    np.testing.assert_allclose(
        _gamma_quantiles(gamma_table(shape), UNIFORM), expected, rtol=1e-10, atol=1e-300
    )


def test_gamma_quantile_of_one_is_the_exponential():
    expected = -np.log1p(-UNIFORM)
    np.testing.assert_allclose(_gamma_quantiles(gamma_table(1.0), UNIFORM), expected, rtol=1e-11)


@pytest.mark.parametrize("shape", [2e5, 1e6, 1e8])
def test_gamma_quantile_of_a_large_shape_gives_back_its_probability(shape):
    # SciPy's inverse loses digits here; its distribution function does not, near the middle.
    middle = np.linspace(0.001, 0.999, 99)
    quantiles = _gamma_quantiles(gamma_table(shape), middle)
    np.testing.assert_allclose(special.gammainc(shape, quantiles * shape), middle, rtol=1e-8)


def test_streams_are_splitmix64():
    # The reference code's output for the seed 1234567 (Vigna, prng.di.unimi.it/splitmix64.c).
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    drawn = _uniforms(np.array([1234567], np.uint64), 0, 4)[0]
    assert drawn.tolist() == [(word >> 11) * 2.0**-53 for word in words]


def test_a_stream_is_read_anywhere():
    keys = stream_keys(1, 2, 3)
    np.testing.assert_array_equal(_uniforms(keys, 0, 100)[:, 40:], _uniforms(keys, 40, 60))


def test_a_uniform_number_is_never_zero_or_one():
    zero = np.array([-0x9E3779B97F4A7C15 % 2**64], np.uint64)  # whose first 64 bits are all 0
    assert _uniforms(zero, 0, 1)[0, 0] == 2.0**-54
    drawn = _uniforms(stream_keys(5, 0, 10), 0, 100_000)
    assert drawn.min() > 0
    assert drawn.max() < 1


def test_keys_are_those_of_the_seed_sequences():
    keys = stream_keys(7, 4, 5)
    sequence = np.random.SeedSequence(7, spawn_key=(4, 3))
    assert keys[3] == sequence.generate_state(1, np.uint64)[0]
    assert keys.tolist() == stream_keys(7, 4, 9)[:5].tolist()
    others = [*stream_keys(7, 5, 5), *stream_keys(8, 4, 5)]
    assert len({*keys.tolist(), *map(int, others)}) == 15


def test_streams_are_uniform_along_and_across():
    along = _uniforms(stream_keys(1, 0, 1), 0, 200_000)[0]
    across = _uniforms(stream_keys(1, 0, 5000), 0, 40)
    assert stats.kstest(along, "uniform").pvalue > 1e-3
    for index in (0, 1, 39):
        assert stats.kstest(across[:, index], "uniform").pvalue > 1e-3
    # Pairs fill the square: neighbours in a stream, and the same index of neighbouring streams.
    for first, second in ((along[:-1], along[1:]), (across[:-1].ravel(), across[1:].ravel())):
        counts = np.histogram2d(first, second, bins=20, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_streams_are_not_correlated():
    drawn = _uniforms(stream_keys(3, 1, 200), 0, 2000)
    correlations = np.corrcoef(drawn)[np.triu_indices(200, 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(2000)
    assert correlations.std() == pytest.approx(1 / math.sqrt(2000), rel=0.05)
