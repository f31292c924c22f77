"""Fits against known parameters and SciPy's maximum likelihood; densities against SciPy's."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from paracosm.errors import InputError
from paracosm.timing.density import cumulative, density
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
    robust_bandwidth,
)
from paracosm.timing.fit import MOST_KERNELS, best_fit, compare_fits, fit
from paracosm.timing.parse import parse_distribution

FAMILIES = [
    "constant",
    "uniform",
    "normal",
    "lognormal",
    "exponential",
    "gamma",
    "weibull",
    "empirical",
    "kernel_density",
    "log_kernel_density",
]
RNG = np.random.default_rng(20)
MEASURED = RNG.gamma(3.0, 2e-6, 3000)

WITH_DENSITY = [
    Uniform(1.0, 3.0),
    Normal(10.0, 3.0),
    Normal(1.0, 4.0),
    Lognormal(0.02, 0.5),
    Exponential(0.02),
    Gamma(0.02, 4.0),
    Weibull(0.02, 1.5),
    KernelDensity((0.011, 0.012, 0.2), 0.01),
    LogKernelDensity((0.011, 0.012, 0.2), 0.3),
    Scaled(Gamma(0.02, 4.0), 0.5),
    Slowdown(Lognormal(0.02, 0.1), 10.0, 0.2),
    Slowdown(Scaled(Normal(1.0, 4.0), 2.0), 0.5, 1.0),
    Slowdown(Gamma(0.02, 4.0), 0.0, 0.0),
]


def sample(distribution, size):
    return distribution.sample(np.random.default_rng(5), size)


@pytest.mark.parametrize(
    "truth",
    [
        Uniform(1e-6, 3e-6),
        Normal(10.0, 3.0),
        Normal(1e-3, 1.5e-3),  # a quarter of it cut off at 0
        Lognormal(7e-7, 0.4),
        Exponential(2e-3),
        Gamma(2e-3, 0.6),
        Gamma(2e-3, 40.0),
        Weibull(5.0, 0.7),
        Weibull(5.0, 8.0),
    ],
)
def test_known_parameters_are_found(truth):
    fitted = fit(sample(truth, 100_000), truth.name)
    assert type(fitted) is type(truth)
    for found, true in zip(vars(fitted).values(), vars(truth).values(), strict=True):
        assert found == pytest.approx(true, rel=0.03)


def test_maximum_likelihood_agrees_with_scipy():
    shape, _, scale = stats.gamma.fit(MEASURED, floc=0)
    gamma = fit(MEASURED, "gamma")
    assert (gamma.shape, gamma.mu / gamma.shape) == pytest.approx((shape, scale), rel=1e-5)
    shape, _, scale = stats.weibull_min.fit(MEASURED, floc=0)
    weibull = fit(MEASURED, "weibull")
    assert weibull.shape == pytest.approx(shape, rel=1e-4)
    assert weibull.mu == pytest.approx(scale * math.gamma(1 + 1 / shape), rel=1e-4)
    sigma, _, median = stats.lognorm.fit(MEASURED, floc=0)
    lognormal = fit(MEASURED, "lognormal")
    assert (lognormal.sigma, lognormal.median) == pytest.approx((sigma, median), rel=1e-4)
    assert fit(MEASURED, "exponential").mu == stats.expon.fit(MEASURED, floc=0)[1]


@pytest.mark.parametrize("truth", [Normal(10.0, 3.0), Normal(2.0, 2.0), Exponential(1.0)])
def test_truncated_normal_is_at_the_greatest_likelihood(truth):
    values = sample(truth, 2000)

    def minus_likelihood(parameters):
        mu, sd = parameters
        return -stats.truncnorm.logpdf(values, -mu / sd, np.inf, mu, sd).sum()

    best = optimize.minimize(
        minus_likelihood,
        [values.mean(), values.std()],
        bounds=[(0, None), (1e-3, None)],
        method="L-BFGS-B",
        tol=1e-14,
    )
    fitted = fit(values, "normal")
    # Above at most by rounding, never below what a general search finds.
    assert minus_likelihood((fitted.mu, fitted.sd)) <= best.fun + 1e-7 * abs(best.fun)
    assert (fitted.mu, fitted.sd) == pytest.approx(tuple(best.x), rel=2e-3, abs=1e-3)


def test_nearly_equal_samples_keep_their_spread():
    values = 1.0 + 1e-7 * np.random.default_rng(1).standard_normal(1000)
    spread = values.std()
    assert fit(values, "gamma").shape == pytest.approx(1 / spread**2, rel=1e-4)
    assert fit(values, "lognormal").sigma == pytest.approx(spread, rel=1e-4)
    assert fit(values, "normal").sd == pytest.approx(spread, rel=1e-12)


def test_samples_of_very_different_size():
    values = [1e-12, 1e-9, 3.0, 1e6]
    fitted = fit(values, "gamma")
    scale = fitted.mu / fitted.shape
    likelihood = stats.gamma(fitted.shape, scale=scale).logpdf(values).sum()
    for factor in (0.99, 1.01):
        other = stats.gamma(fitted.shape * factor, scale=scale / factor).logpdf(values).sum()
        assert other < likelihood


def test_samples_that_differ_in_the_last_digit_only():
    values = [1e6, np.nextafter(1e6, 2e6), 1e6]
    for family in ("lognormal", "gamma", "weibull", "log_kernel_density"):
        with pytest.raises(InputError, match="no spread"):
            fit(values, family)


def test_constant_and_empirical():
    assert fit([1.0, 2.0, 6.0], "constant") == Constant(3.0)
    assert fit([2.0, 1.0], "empirical") == Empirical((2.0, 1.0))
    assert fit([2.0, 2.0], "empirical") == Empirical((2.0, 2.0))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fit_is_written_and_read_back(family):
    fitted = fit(MEASURED[:50], family)
    assert fitted.name == family
    assert parse_distribution(str(fitted)) == fitted


@given(
    st.lists(st.floats(1e-9, 1e6), min_size=2, max_size=30).filter(
        lambda values: max(values) > 1.01 * min(values)
    ),
    st.floats(1e-3, 1e3),
)
@settings(deadline=None)
def test_fits_scale_with_the_unit_of_time(values, factor):
    for family in ("uniform", "normal", "lognormal", "exponential", "gamma", "weibull"):
        try:
            fitted = fit(values, family)
            scaled = fit([factor * value for value in values], family)
        except InputError:  # a spread that a family's parameters do not reach
            assert max(values) / min(values) > 1e6
            continue
        assert scaled.mean() == pytest.approx(factor * fitted.mean(), rel=1e-6)


# Kernel densities


def test_kernels_are_the_samples_and_the_robust_bandwidth():
    linear = fit(MEASURED, "kernel_density")
    assert linear == KernelDensity(tuple(MEASURED.tolist()), robust_bandwidth(MEASURED))
    assert fit(MEASURED, "log_kernel_density").bandwidth == robust_bandwidth(np.log(MEASURED))


def test_many_samples_are_thinned_to_even_quantiles():
    values = np.random.default_rng(1).permutation(np.arange(1.0, 100_001.0))
    fitted = fit(values, "kernel_density")
    kernels = np.array(fitted.samples)
    assert kernels.size == MOST_KERNELS
    np.testing.assert_allclose(np.diff(kernels), 100_000 / MOST_KERNELS, atol=1.01)
    assert kernels.mean() == pytest.approx(values.mean(), rel=1e-4)
    # The bandwidth is that of all of them: 25,000 is the MAD of 1, 2, ..., 100,000.
    assert fitted.bandwidth == pytest.approx(0.9 * 1.4826 * 25_000 * 1e5**-0.2, rel=1e-12)


KERNELS = ("kernel_density", "log_kernel_density")


def test_a_long_tail_asks_for_the_log_scale_and_leaves_the_median_where_it_is():
    # The published case: a median of 706 ns, which a default bandwidth moves to 9,417 ns.
    values = np.exp(np.random.default_rng(1).normal(math.log(706e-9), 0.2, 2000))
    values[:100] *= 10_000
    fitted = best_fit(values, KERNELS).distribution
    assert isinstance(fitted, LogKernelDensity)
    assert np.median(sample(fitted, 50_000)) == pytest.approx(np.median(values), rel=0.02)
    assert fitted.mean() == pytest.approx(values.mean(), rel=0.02)
    scott = stats.gaussian_kde(values).resample(20_000, seed=1)
    assert np.median(scott[scott > 0]) > 5 * np.median(values)  # the fault that it avoids


def test_a_coarse_clock_still_gives_a_bandwidth():
    values = [1.0] * 60 + [2.0] * 30 + [3.0] * 10
    fitted = fit(values, "kernel_density")
    assert fitted.bandwidth == pytest.approx(0.9 * 1.4826 * 1.0 / 3**0.2)  # of 1, 2, 3
    assert fit(values, "log_kernel_density").bandwidth > 0


# Densities


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Uniform(1.0, 3.0), stats.uniform(1, 2)),
        (Normal(10.0, 3.0), stats.truncnorm(-10 / 3, np.inf, 10, 3)),
        (Normal(1.0, 4.0), stats.truncnorm(-1 / 4, np.inf, 1, 4)),
        (Lognormal(2.0, 0.5), stats.lognorm(0.5, scale=2)),
        (Exponential(2.0), stats.expon(scale=2)),
        (Gamma(2.0, 4.0), stats.gamma(4, scale=0.5)),
        (Gamma(2.0, 0.5), stats.gamma(0.5, scale=4)),
        (Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2 / math.gamma(1 + 1 / 1.5))),
        (Scaled(Gamma(2.0, 4.0), 0.5), stats.gamma(4, scale=1)),
    ],
)
def test_density_against_scipy(ours, theirs):
    x = np.array([[-1.0, 0.0, 1e-3], [0.5, 1.7, 3.0], [4.0, 20.0, 60.0]])
    np.testing.assert_allclose(density(ours, x), theirs.pdf(x), rtol=1e-11)
    np.testing.assert_allclose(cumulative(ours, x), theirs.cdf(x), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("distribution", WITH_DENSITY, ids=lambda each: str(each))
def test_density_integrates_to_the_cumulative_one_and_inverts_the_draws(distribution):
    low, high = distribution.from_uniform(np.array([1e-9, 1 - 1e-9]))
    x = np.linspace(low, high, 20_001)[1:]
    middle = (x[1:] + x[:-1]) / 2
    integral = np.sum(density(distribution, middle) * np.diff(x))
    difference = cumulative(distribution, x[-1]) - cumulative(distribution, x[0])
    assert integral == pytest.approx(difference, abs=2e-4)
    drawn = np.sort(distribution.from_uniform((np.arange(50_000) + 0.5) / 50_000))
    below = (np.arange(0, 50_000, 500) + 0.5) / 50_000
    np.testing.assert_allclose(cumulative(distribution, drawn[::500]), below, atol=2e-4)


def test_kernel_density_is_the_mean_of_its_kernels():
    samples, width = (0.011, 0.012, 0.2), 0.01
    x = np.linspace(0, 0.3, 50)
    kernels = [stats.truncnorm(-s / width, np.inf, s, width).pdf(x) for s in samples]
    np.testing.assert_allclose(
        density(KernelDensity(samples, width), x), np.mean(kernels, axis=0), rtol=1e-10
    )
    logarithmic = [stats.lognorm(width, scale=s).pdf(x) for s in samples]
    np.testing.assert_allclose(
        density(LogKernelDensity(samples, width), x), np.mean(logarithmic, axis=0), rtol=1e-10
    )


def test_density_of_more_points_than_one_block():
    distribution = fit(MEASURED, "log_kernel_density")
    x = np.linspace(0, 3e-5, 3001)
    assert integrate.trapezoid(density(distribution, x), x) == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(density(distribution, x)[1234], density(distribution, x[1234]))


@pytest.mark.parametrize(
    "distribution",
    [
        Constant(1.0),
        Empirical((1.0, 2.0)),
        Recorded((1.0, 2.0)),
        Uniform(1.0, 1.0),
        Normal(1.0, 0.0),
        Lognormal(1.0, 0.0),
        Exponential(0.0),
        KernelDensity((1.0, 1.0)),
        Scaled(Constant(1.0), 2.0),
        Slowdown(Normal(1.0, 1.0), 0.0, 0.5),
    ],
)
def test_single_values_have_no_density(distribution):
    with pytest.raises(InputError, match="no density"):
        density(distribution, 1.0)
    with pytest.raises(InputError, match="no density"):
        cumulative(distribution, 1.0)


# The choice


@pytest.mark.parametrize(
    "truth",
    [
        Uniform(1e-3, 3e-3),
        Normal(10.0, 3.0),
        Lognormal(0.02, 0.5),
        Exponential(2.0),
        Gamma(2.0, 4.0),
        Weibull(2.0, 3.0),
    ],
)
def test_the_family_that_drew_the_samples_is_chosen(truth):
    values = sample(truth, 2000)
    fits = compare_fits(values)
    best = fits[0]
    assert best.family == truth.name
    assert type(best.distribution) is type(truth)
    assert best.ks < 1.63 / math.sqrt(2000)  # its quantile of 99 %
    scores = [fit.score for fit in fits]
    assert scores == sorted(scores, reverse=True)
    assert len(fits) == 8


def test_two_bumps_need_a_kernel_density():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(10, 1, 500), rng.normal(14, 0.5, 500)])
    assert best_fit(values).family in ("kernel_density", "log_kernel_density")


def test_a_long_tail_chooses_the_log_scale():
    values = np.exp(np.random.default_rng(1).normal(math.log(706e-9), 0.2, 2000))
    values[:100] *= 10_000
    best = best_fit(values)
    assert best.family == "log_kernel_density"
    assert best.ks < 0.05


def test_a_few_outliers_do_not_decide():
    rng = np.random.default_rng(3)
    values = rng.normal(1e-3, 1e-4, 2000)
    values[:4] = [0.1, 0.5, 2.0, 7.0]
    best = best_fit(values)
    assert np.median(sample(best.distribution, 20_000)) == pytest.approx(1e-3, rel=0.02)


def test_likelihood_and_distance_by_hand():
    (best,) = compare_fits([1.0, 2.0, 3.0, 6.0], ["exponential"])
    # The mean is 3: log(1/3) - x / 3 on average; F(3) = 0.632 when 2 of 4 samples are below 3.
    assert best.log_likelihood == pytest.approx(-math.log(3) - 1)
    largest = max(1 - math.exp(-1 / 3), 1 - math.exp(-2 / 3) - 0.25, 1 - math.exp(-1) - 0.5)
    assert best.ks == pytest.approx(largest)
    assert best.ks == pytest.approx(stats.kstest([1, 2, 3, 6], stats.expon(scale=3).cdf).statistic)


def test_leaving_one_out_by_hand():
    values = np.array([1.0, 1.5, 2.5, 2.75])
    (found,) = compare_fits(values, ["log_kernel_density"])
    width = found.distribution.bandwidth
    expected = [
        np.mean([stats.lognorm(width, scale=other).pdf(own) for other in np.delete(values, at)])
        for at, own in enumerate(values)
    ]
    assert found.log_likelihood == pytest.approx(np.mean(np.log(expected)), rel=1e-10)


def test_families_without_zero_are_left_out_when_a_sample_is_zero():
    values = np.append(MEASURED[:100], 0.0)
    found = {fit.family for fit in compare_fits(values)}
    assert found == {"uniform", "normal", "exponential", "kernel_density"}
    with pytest.raises(InputError, match=r"samples\[100\] is 0, which gamma never is"):
        compare_fits(values, ["gamma"])


def test_equal_samples_are_a_constant():
    best = best_fit([2e-3] * 5)
    assert (best.distribution, best.ks) == (Constant(2e-3), 0.0)


def test_a_million_samples():
    values = sample(Gamma(2e-5, 4.0), 1_000_000)
    best = best_fit(values, ["gamma", "kernel_density"])
    assert best.family == "gamma"
    assert best.distribution.shape == pytest.approx(4, rel=0.01)


# Bad input


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "there are no samples"),
        ([1.0, -2.0, -3.0], r"samples\[1\] is -2, not a duration"),
        ([1.0, 2.0, math.nan], r"samples\[2\] is nan, not a duration"),
        ([math.inf, 2.0], r"samples\[0\] is inf, not a duration"),
        ([[1.0, 2.0]], r"not of shape \(1, 2\)"),
        (["a", "b"], "numbers of seconds"),
    ],
)
def test_samples_that_are_no_durations_are_refused(values, words, family):
    with pytest.raises(InputError, match=words):
        fit(values, family)


def test_other_samples_that_cannot_be_fitted():
    for family in ("uniform", "normal", "lognormal", "exponential", "gamma", "weibull"):
        with pytest.raises(InputError, match=f"{family}: all 3 samples are 2 ms.*use constant"):
            fit([2e-3] * 3, family)
    for family in ("lognormal", "gamma", "weibull", "log_kernel_density"):
        with pytest.raises(InputError, match=rf"samples\[1\] is 0, which a {family} never is"):
            fit([1.0, 0.0, 2.0], family)
    with pytest.raises(InputError, match='unknown family "lognorml": did you mean "lognormal"'):
        fit([1.0, 2.0], "lognorml")
    with pytest.raises(InputError, match='unknown family with a density "empirical"'):
        compare_fits([1.0, 2.0], ["empirical"])


def test_samples_under_a_mask_are_not_read():
    with pytest.raises(InputError, match="samples: a masked array is no argument"):
        fit(np.ma.masked_array([1.0, 2.0, 9.0], mask=[0, 0, 1]), "lognormal")


@pytest.mark.parametrize("points", ["soon", 10**400, object(), np.ma.ones(2)])
def test_a_density_is_of_numbers(points):
    with pytest.raises(InputError, match=r"durations: a masked|durations must be numbers"):
        density(Exponential(1.0), points)


def test_no_duration_is_endless():
    for text in ("gamma(1s, 2)", "lognormal(1s, 1)", "normal(1s, 1s)", "weibull(1s, 2)"):
        distribution = parse_distribution(text)
        assert density(distribution, math.inf) == 0
        assert cumulative(distribution, math.inf) == 1
