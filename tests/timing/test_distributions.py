"""Every distribution against SciPy's or against numerical integration of its own draws."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from paracosm.errors import InputError
from paracosm.timing.distribution import Scaled, Slowdown
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
from paracosm.timing.parse import parse_distribution

SAMPLES = (0.011, 0.012, 0.0125, 0.013, 0.2)
durations = st.floats(1e-9, 1e6)
shapes = st.floats(0.2, 50)
samples = st.lists(durations, min_size=1, max_size=20).map(tuple)
simple = st.one_of(
    st.builds(Constant, durations),
    st.builds(lambda low, width: Uniform(low, low + width), durations, durations),
    st.builds(Normal, durations, durations),
    st.builds(Lognormal, durations, st.floats(0, 2)),
    st.builds(Exponential, durations),
    st.builds(Gamma, durations, shapes),
    st.builds(Weibull, durations, shapes),
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
    max_leaves=3,
)
everything = drawn | st.builds(Recorded, samples, st.booleans())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Uniform(0.01, 0.03), stats.uniform(0.01, 0.02)),
        (Normal(10, 3), stats.truncnorm(-10 / 3, np.inf, 10, 3)),
        (Normal(1, 4), stats.truncnorm(-1 / 4, np.inf, 1, 4)),
        (Lognormal(0.02, 0.5), stats.lognorm(0.5, scale=0.02)),
        (Exponential(0.02), stats.expon(scale=0.02)),
        (Gamma(0.02, 4), stats.gamma(4, scale=0.005)),
        (Weibull(0.02, 1.5), stats.weibull_min(1.5, scale=0.02 / math.gamma(1 + 1 / 1.5))),
        (Scaled(Gamma(0.02, 4), 0.5), stats.gamma(4, scale=0.01)),
    ],
)
def test_family_against_scipy(ours, theirs):
    assert ours.mean() == pytest.approx(theirs.mean(), rel=1e-12)
    uniform = np.linspace(0.001, 0.999, 999)
    np.testing.assert_allclose(ours.from_uniform(uniform), theirs.ppf(uniform), rtol=1e-9)


@pytest.mark.parametrize(
    "distribution",
    [
        Empirical(SAMPLES),
        KernelDensity(SAMPLES),
        pytest.param(KernelDensity(SAMPLES, 0.01), marks=pytest.mark.slow),
        LogKernelDensity(SAMPLES, 0.3),
        pytest.param(Slowdown(Lognormal(0.02, 0.1), 10, 0.01), marks=pytest.mark.slow),
        Slowdown(KernelDensity(SAMPLES, 0.01), 3, 0.4),
        pytest.param(Slowdown(Exponential(0.02), 3, 1.0), marks=pytest.mark.slow),
        pytest.param(Slowdown(Exponential(0.02), 3, 0.0), marks=pytest.mark.slow),
    ],
)
def test_mean_is_the_integral_over_all_draws(distribution):
    uniform = (np.arange(4_000_000) + 0.5) / 4_000_000
    integral = distribution.from_uniform(uniform).mean()
    assert distribution.mean() == pytest.approx(integral, rel=2e-5)


def test_kernel_density_is_the_mixture_of_its_kernels():
    draws = KernelDensity(SAMPLES, 0.004).from_uniform((np.arange(200_000) + 0.5) / 200_000)
    for at in (0.005, 0.0125, 0.02, 0.21):
        mixture = np.mean([stats.truncnorm(-x / 0.004, np.inf, x, 0.004).cdf(at) for x in SAMPLES])
        assert np.mean(draws <= at) == pytest.approx(mixture, abs=1e-4)


def test_default_bandwidth_is_not_blown_up_by_a_heavy_tail():
    heavy = np.exp(np.random.default_rng(1).normal(math.log(706e-9), 0.2, 2000))
    heavy[:100] *= 10_000
    median = np.median(heavy)
    for distribution in (KernelDensity(tuple(heavy)), LogKernelDensity(tuple(heavy))):
        drawn_median = np.median(distribution.sample(np.random.default_rng(2), 20_000))
        assert drawn_median == pytest.approx(median, rel=0.03)


def test_slowdown_happens_as_often_and_as_much_as_said():
    draws = Slowdown(Constant(2.0), 10, 0.25).sample(np.random.default_rng(1), 100_000)
    assert set(draws) == {2.0, 20.0}
    assert np.mean(draws == 20.0) == pytest.approx(0.25, abs=0.01)


def test_a_slow_node_takes_longer():
    assert Constant(2.0).scaled(0.5).sample(np.random.default_rng(1)) == 4.0
    assert Constant(2.0).scaled(1.0) == Constant(2.0)


@settings(max_examples=200)
@given(drawn, st.integers(0, 2**32))
def test_arrays_and_samplers_give_the_draws_of_scalar_sampling(distribution, seed):
    scalar = np.random.default_rng(seed)
    expected = [distribution.sample(scalar) for _ in range(600)]
    assert distribution.sample(np.random.default_rng(seed), 600).tolist() == expected
    draw = distribution.sampler(np.random.default_rng(seed))
    assert [draw() for _ in range(600)] == expected


@given(drawn, st.integers(0, 2**32))
def test_draws_are_durations(distribution, seed):
    draws = distribution.sample(np.random.default_rng(seed), (3, 50))
    assert draws.shape == (3, 50)
    assert np.all(np.isfinite(draws))
    assert np.all(draws >= 0)


@settings(max_examples=300)
@given(everything)
def test_string_parses_back_equal(distribution):
    assert parse_distribution(str(distribution)) == distribution


@given(everything)
def test_pickles(distribution):
    assert pickle.loads(pickle.dumps(distribution)) == distribution


def test_the_ends_of_the_uniform_interval_give_finite_draws():
    class Ends:
        def random(self, size):
            return np.array([0.0, 1 - 2.0**-53])

    for text in ("lognormal(1, 3)", "normal(1, 0)", "exponential(1)", "gamma(1, 0.5)",
                 "slowdown(exponential(1), 2, 0.3)", "log_kernel_density(1, 2)"):  # fmt: skip
        assert np.all(np.isfinite(parse_distribution(text).sample(Ends(), 2)))


def test_recording_is_replayed_in_order_then_refused():
    draw = Recorded((1.0, 3.0, 2.0)).sampler(np.random.default_rng())
    assert [draw(), draw(), draw()] == [1.0, 3.0, 2.0]
    with pytest.raises(InputError, match="exhausted after 3 durations"):
        draw()


def test_recording_cycles_when_asked_and_each_sampler_starts_over():
    recorded = Recorded((1.0, 3.0), cycle=True)
    draw = recorded.sampler(np.random.default_rng())
    assert [draw() for _ in range(5)] == [1.0, 3.0, 1.0, 3.0, 1.0]
    assert recorded.sampler(np.random.default_rng())() == 1.0
    assert recorded.sample(np.random.default_rng(), 3).tolist() == [1.0, 3.0, 1.0]
    assert recorded.mean() == 2.0


def test_scaled_recording_keeps_its_place():
    draw = Recorded((1.0, 3.0)).scaled(2.0).sampler(np.random.default_rng())
    assert [draw(), draw()] == [0.5, 1.5]


def test_recording_has_no_single_draw_without_a_place():
    with pytest.raises(TypeError, match="sampler"):
        Recorded((1.0,)).sample(np.random.default_rng())


def test_truncated_normal_mean_against_integration():
    density = stats.norm(0.5, 2).pdf
    numerator = integrate.quad(lambda x: x * density(x), 0, 60)[0]
    denominator = integrate.quad(density, 0, 60)[0]
    assert Normal(0.5, 2).mean() == pytest.approx(numerator / denominator, rel=1e-9)


def test_parameters_of_any_type_of_numbers_are_floats():
    wide = Uniform(np.int8(100), np.int8(127))
    assert (wide.mean(), str(wide)) == (113.5, "uniform(100s, 127s)")
    assert str(Constant(np.float64(0.1))) == "constant(100ms)"
    assert Empirical([np.int8(100), np.int8(120)]) == Empirical((100.0, 120.0))


@pytest.mark.parametrize("value", [True, "1s", None, 1j, [1.0]])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InputError, match="must be finite and 0 or more"):
        Constant(value)
    with pytest.raises(InputError, match=r"samples are a list|every duration must be"):
        Empirical(5 if value is None else (value,))


def test_a_base_is_a_distribution():
    with pytest.raises(InputError, match="scaled: base must be a distribution, not 5"):
        Scaled(5, 2.0)
