"""The parts of estimators: against hand-computed values, scikit-learn, and laws that must hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.neural_network import MLPRegressor
from synthetic_device import add, device_time, draw, matmul

from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling.estimators.describe import Description, describe, layout_of, seen_in
from paracosm.profiling.estimators.methods import HeldOut, fit_gaussian, fit_mlp, fold_of
from paracosm.profiling.estimators.roofline import Roofline, cells_of, conformal, fit_roofline

DEVICE = Roofline(launch=1e-6, peak=1e12, bandwidth=1e11)


def work(flops: float, moved: float) -> Description:
    return describe(Op("dev.op", "", int(flops), int(moved), 0))


def test_arguments_are_flattened_by_their_paths() -> None:
    weight = TensorArgument((5, 7), "float32", stride=(1, 5), on="cpu")
    pair = [TensorArgument((2, 3), "int64"), TensorArgument((4,), "int64")]
    args = [weight, [1, 2], True, None, 0.001, 0.5, pair, {"dtype": "int64"}]
    found = describe(Op("a.b.c", encode_arguments(args, {"mode": "max"}), 3, 4, 5))
    assert (found.flops, found.bytes) == (3.0, 9.0)
    assert found.sizes == {"0.0": 5, "0.1": 7} | {"6.count": 2, "6.elements": 10, "6.largest": 6}
    assert found.numbers == {"0.rank": 2, "1.0": 1, "1.1": 2, "5": 0.5}
    assert found.categories == (
        {"0": "float32", "0.order": "1,0", "0.on": "cpu"}
        | {"2": "true", "3": "none", "6": "int64", "6.order": "dense"}
        | {"7": '{"dtype": "int64"}', "mode": "max"}
    )


def test_a_convolution_is_seen_as_channels_kernel_and_pixels() -> None:
    image, weight = TensorArgument((8, 32, 14, 14), "float32"), TensorArgument((48, 32, 3, 3), "f")
    args = [image, weight, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
    derived = describe(Op("aten.convolution.default", encode_arguments(args, {}))).derived
    assert derived["channels in"] == math.log1p(32)
    assert derived["pixels"] == math.log1p(196)
    assert derived["kernel"] == math.log1p(9)
    assert derived["stride"] == math.log1p(4)
    assert derived["channels out aligned"] == 4  # 48 = 2^4 x 3
    assert "0.elements" not in derived


def test_columns_that_say_nothing_are_left_out() -> None:
    ops = [describe(matmul(2**i, 64, 2**i)) for i in range(1, 6)]  # m = n; k, dtypes, ranks fixed
    layout = layout_of(ops, "raw")
    assert layout.numbers == ("0.0",)
    assert layout.categories == ()
    matrix = layout.matrix(ops)
    np.testing.assert_allclose(matrix.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(matrix.std(axis=0), 1)


def test_a_category_never_seen_and_a_size_beyond_are_noticed() -> None:
    seen = seen_in([describe(matmul(64, 64, 64)), describe(matmul(128, 64, 64))])
    assert seen.outside(describe(matmul(100, 64, 64))) == 0.0
    assert seen.outside(describe(matmul(100, 64, 64, "bfloat16"))) == math.inf
    twice = seen.outside(describe(matmul(64, 128, 64)))
    assert twice == pytest.approx(math.log(2), rel=0.03)


def test_a_roofline_is_found_again() -> None:
    random = np.random.default_rng(0)
    ops = [work(10 ** random.uniform(4, 11), 10 ** random.uniform(3, 9)) for _ in range(60)]
    found = fit_roofline(ops, DEVICE.log_time(ops))
    assert found.launch == pytest.approx(DEVICE.launch, rel=0.01)
    assert found.peak == pytest.approx(DEVICE.peak, rel=0.01)
    assert found.bandwidth == pytest.approx(DEVICE.bandwidth, rel=0.01)


def test_outliers_do_not_move_a_roofline() -> None:
    random = np.random.default_rng(0)
    ops = [work(0, 10 ** random.uniform(3, 9)) for _ in range(60)]
    times = DEVICE.log_time(ops)
    times[::10] += math.log(5)
    assert fit_roofline(ops, times).bandwidth == pytest.approx(DEVICE.bandwidth, rel=0.1)


def test_what_samples_do_not_say_is_the_device_s() -> None:
    ops = [work(0, 10**6), work(0, 10**8)]
    half = Roofline(DEVICE.launch, DEVICE.peak, DEVICE.bandwidth / 2)
    found = fit_roofline(ops, half.log_time(ops), prior=DEVICE)
    assert found.peak == pytest.approx(DEVICE.peak, rel=1e-3)
    assert found.bandwidth == pytest.approx(DEVICE.bandwidth / 2, rel=0.1)


@settings(max_examples=50)
@given(
    flops=st.floats(0, 1e15),
    moved=st.floats(0, 1e12),
    factor=st.floats(1, 1e3),
    parameters=st.tuples(st.floats(1e-9, 1e-2), st.floats(1e6, 1e16), st.floats(1e6, 1e13)),
)
def test_a_roofline_grows_with_work_but_no_faster(
    flops: float, moved: float, factor: float, parameters: tuple[float, float, float]
) -> None:
    small, large = work(flops, moved), work(factor * flops, factor * moved)
    less, more = Roofline(*parameters).log_time([small, large])
    assert less - 1e-9 <= more
    if int(flops) * factor >= int(factor * flops) - 1 and min(flops, moved) > 1e4:
        assert more <= less + math.log(factor) + 1e-3


@pytest.fixture(scope="module")
def samples() -> tuple[list[Description], np.ndarray, Roofline]:
    ops = draw("dev.matmul.default", 40, 3)
    described, times = [describe(op) for op in ops], np.log([device_time(op) for op in ops])
    return described, times, fit_roofline(described, times)


def test_the_process_predicts_as_scikit_learn_does(
    samples: tuple[list[Description], np.ndarray, Roofline],
) -> None:
    ops, times, roofline = samples
    process = fit_gaussian(ops, times, roofline, seed=0)
    kernel = ConstantKernel(process.amplitude) * Matern(process.lengths, nu=1.5)
    reference = GaussianProcessRegressor(
        kernel + WhiteKernel(process.noise), alpha=1e-8, optimizer=None
    )
    residual = times - roofline.log_time(ops)
    reference.fit(process.layout.matrix(ops), (residual - process.mean) / process.scale)
    others = [describe(op) for op in draw("dev.matmul.default", 20, 4)]
    mean, deviation = reference.predict(process.layout.matrix(others), return_std=True)
    found, scale = process.predict(others)
    expected = roofline.log_time(others) + process.mean + process.scale * mean
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(scale, process.scale * deviation, rtol=1e-5)


def test_the_network_predicts_as_scikit_learn_does(
    samples: tuple[list[Description], np.ndarray, Roofline],
) -> None:
    ops, times, roofline = samples
    network = fit_mlp(ops, times, roofline, seed=0)
    hidden = [len(bias) for bias in network.biases[:-1]]
    reference = MLPRegressor(hidden_layer_sizes=hidden, max_iter=1, solver="lbfgs")
    with pytest.warns(UserWarning, match="lbfgs failed to converge"):
        reference.fit(network.layout.matrix(ops), times)
    reference.coefs_, reference.intercepts_ = list(network.weights), list(network.biases)
    expected = network.mean + network.scale * reference.predict(network.layout.matrix(ops))
    np.testing.assert_allclose(network.predict(ops)[0], expected, rtol=1e-9)


def test_far_from_all_samples_the_process_is_its_roofline_and_unsure(
    samples: tuple[list[Description], np.ndarray, Roofline],
) -> None:
    ops, times, roofline = samples
    process = fit_gaussian(ops, times, roofline, seed=0)
    far = [describe(matmul(10**6, 10**6, 10**6))]
    found, deviation = process.predict(far)
    assert found[0] - roofline.log_time(far)[0] == pytest.approx(process.mean, abs=0.3)
    assert deviation[0] > 1.2 * process.predict(ops)[1].max()


def test_equal_samples_have_a_constant_estimate() -> None:
    ops = [describe(add(8, 8, alpha)) for alpha in (0.1, 0.2, 0.3)]
    times = np.log([1e-5, 2e-5, 4e-5])
    expected = np.full(3, math.log(2e-5))
    for fit in (fit_mlp, fit_gaussian):
        np.testing.assert_allclose(fit(ops, times, DEVICE, 0).predict(ops)[0], expected)


def test_two_neighbours_are_weighted_by_their_nearness() -> None:
    ops = [describe(add(999, 99)), describe(add(1099, 99)), describe(add(5, 5))]
    roofline = Roofline(1e-9, 1e12, 1e9)
    ratio = np.array([0.3, 0.6, 5.0])
    cells = cells_of(ops, roofline.log_time(ops) + ratio, roofline)
    here = describe(add(1019, 99))
    log_time, distance = cells.estimate(here, roofline)
    left, right = math.log(1020 / 1000), math.log(1100 / 1020)
    weights = np.array([1 / (left + 0.02), 1 / (right + 0.02)])
    expected = roofline.log_time([here])[0] + weights @ ratio[:2] / weights.sum()
    assert distance == pytest.approx(left)
    assert log_time == pytest.approx(expected)


def test_beyond_the_radius_there_is_no_neighbour() -> None:
    ops = [describe(add(1000, 100))]
    cells = cells_of(ops, np.zeros(1), DEVICE)
    assert cells.estimate(describe(add(1300, 100)), DEVICE)[1] < 0.3
    assert cells.estimate(describe(add(1400, 100)), DEVICE)[1] == math.inf
    assert cells.estimate(describe(add(1000, 100)), DEVICE, radius=0.0)[1] == 0.0


def test_ops_of_equal_sizes_are_in_one_fold() -> None:
    ops = [describe(add(rows, 8, alpha)) for rows in range(10, 30) for alpha in (0.1, 1.0, 2.0)]
    fold = fold_of(ops, 5, seed=1).reshape(20, 3)
    assert (fold == fold[:, :1]).all()
    assert np.bincount(fold[:, 0]).tolist() == [4] * 5


def held_out(**errors: list[float]) -> HeldOut:
    arrays = {method: np.array(error) for method, error in errors.items()}
    none = np.full(4, np.nan)
    return HeldOut(arrays, {method: np.ones(4) for method in errors}, none, none)


def test_the_best_of_equals_is_the_later_one() -> None:
    # Mean errors 2 and 2.5; the difference 0.5 has the standard error sqrt(11) / 4 = 0.83.
    unclear = held_out(roofline=[1, -2, 3, 2], gaussian=[3, 1, -2, 4])
    assert unclear.best == "gaussian"
    # Again 2 and 2.5, but every one is worse by 0.5.
    assert held_out(roofline=[1, -2, 3, 2], gaussian=[1.5, 2.5, -3.5, 2.5]).best == "roofline"


def test_the_quantile_of_held_out_errors_by_hand() -> None:
    assert conformal(np.arange(1.0, 20.0), 99.0) == 18.0  # ceil(20 x 0.9) of 19
    assert conformal(np.arange(1.0, 11.0), 99.0) == 10.0  # ceil(11 x 0.9) of 10
    assert conformal(np.arange(1.0, 10.0), 99.0) == 99.0  # nine are too few
