"""Which estimator answers for which op, and what it says of itself."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_device import ENVIRONMENT, add, device_time, draw, matmul, timings_of, view

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments, encode_arguments
from paracosm.profiling.estimators.describe import describe
from paracosm.profiling.estimators.estimators import Estimators, fit_estimators
from paracosm.profiling.estimators.roofline import pool
from paracosm.profiling.samples import OpTiming, spread_of

OPS = draw("dev.add.Tensor", 40, 1) + [view(rows) for rows in (1, 2, 3)]

WHOLE = st.integers(-(2**63), 2**64 - 1)  # what a database may hold


@pytest.fixture(scope="module")
def timings() -> list[OpTiming]:
    return timings_of(OPS)


@pytest.fixture(scope="module")
def estimators(timings: list[OpTiming]) -> Estimators:
    return fit_estimators(timings)


def timed(op: Op, *sets: list[float]) -> list[OpTiming]:
    return [OpTiming(op, ENVIRONMENT, "cold", spread_of(samples)) for samples in sets]


def test_an_op_that_was_timed_gets_its_mean(
    estimators: Estimators, timings: list[OpTiming]
) -> None:
    for timing in timings:
        estimate = estimators.estimate(timing.op)
        assert estimate.duration == pytest.approx(timing.time.mean, rel=1e-12)
        assert (estimate.source, estimate.method) == ("exact", "exact")


def test_the_interval_of_a_timed_op_is_that_of_its_mean() -> None:
    # Standard error of the mean of n samples: sigma / sqrt(n). 21 of them, 0.01 apart, have the
    # variance 0.01^2 (21 * 22) / 12; 90 % of normal numbers are within 1.6449 sigma.
    samples = list(np.linspace(0.9, 1.1, 21))
    estimate = fit_estimators(timed(OPS[0], samples)).estimate(OPS[0])
    half = 1.6449 * 0.01 * math.sqrt(21 * 22 / 12) / math.sqrt(21)
    assert estimate.duration == pytest.approx(1.0)
    assert estimate.high == pytest.approx(math.exp(half), rel=1e-4)
    assert estimate.low == pytest.approx(math.exp(-half), rel=1e-4)


def test_sets_that_disagree_widen_the_interval() -> None:
    # Two sets of exact samples, a factor 1.21 apart: the means scatter with variance
    # 2 log(1.1)^2; the mean of two and one more have 1.5 times that.
    estimate = fit_estimators(timed(OPS[0], [1.0] * 9, [1.21] * 9)).estimate(OPS[0])
    half = 1.6449 * math.log(1.1) * math.sqrt(3)
    assert estimate.duration == pytest.approx(1.105)
    assert estimate.high / estimate.duration == pytest.approx(math.exp(half), rel=1e-4)


def test_the_interval_counts_long_samples_as_the_mean_does() -> None:
    """One sample in ten takes twice as long: a busy machine's, which no percentile notices."""
    noise = np.random.default_rng(3)
    ops = [add(16, 16 + i) for i in range(200)]
    timings = [
        timing
        for op in ops
        for timing in timed(op, list(1 + (noise.random(40) < 0.1) + 0.01 * noise.random(40)))
    ]
    exact, _ = pool(timings)
    found = [exact.estimate(row) for row in range(len(ops))]
    assert 0.8 <= np.mean([each.low <= 1.105 <= each.high for each in found]) <= 0.97


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_nine_of_ten_means_lie_in_the_interval_with_and_without_drift(drift: float) -> None:
    """Two sets of twenty samples of 2 % each; the mean in question is that of a third time."""
    noise = np.random.default_rng(7)
    ops = [add(16, 16 + i) for i in range(300)]
    timings, third = [], []
    for op in ops:
        one, other, later = np.exp(drift * noise.standard_normal(3))
        for mean in (one, other):
            timings += timed(op, [1e-3 * mean * (1 + 0.02 * z) for z in noise.standard_normal(20)])
        third.append(1e-3 * later)
    exact, _ = pool(timings)
    found = [exact.estimate(exact.rows[op.name, op.arguments]) for op in ops]
    inside = [each.low <= mean <= each.high for each, mean in zip(found, third, strict=True)]
    assert 0.83 <= np.mean(inside) <= 0.97
    by_hand = 1.645 * math.sqrt(0.02**2 / 40 + 1.5 * drift**2)
    assert float(np.median(exact.half_width)) == pytest.approx(by_hand, rel=0.4)


def test_a_set_weighs_as_much_as_it_has_samples() -> None:
    estimate = fit_estimators(timed(OPS[0], [1.0] * 9, [16.0] * 3)).estimate(OPS[0])
    assert estimate.duration == pytest.approx((9 * 1.0 + 3 * 16.0) / 12)


def test_a_neighbour_of_almost_equal_sizes_is_scaled() -> None:
    known = fit_estimators(timings_of([add(1000, 1000), add(10, 10)]))
    estimate = known.estimate(add(1010, 1000))
    assert (estimate.source, estimate.method) == ("interpolated", "nearest")
    assert estimate.duration == pytest.approx(device_time(add(1010, 1000)), rel=0.05)


def test_no_neighbour_is_taken_from_another_cell() -> None:
    transposed = TensorArgument((1010, 1000), "float32", stride=(1, 1010))
    other = dataclasses.replace(
        add(1010, 1000), arguments=encode_arguments([transposed, transposed], {"alpha": 0.25})
    )
    known = fit_estimators(timings_of([add(1000, 1000), add(10, 10)]))
    assert known.estimate(add(1010, 1000)).source == "interpolated"
    assert known.estimate(other).source == "estimated"


def test_a_learning_rate_is_no_other_cell() -> None:
    known = fit_estimators(timings_of([add(1000, 1000, alpha=0.1), add(10, 10)]))
    estimate = known.estimate(add(1000, 1000, alpha=0.2))
    assert estimate.source == "interpolated"
    assert estimate.duration == pytest.approx(device_time(add(1000, 1000)), rel=0.03)


def test_sizes_in_between_are_learned(estimators: Estimators) -> None:
    estimate = estimators.estimate(add(64, 2000))
    assert estimate.source == "estimated"
    assert estimate.method == estimators.types["dev.add.Tensor"].method != "roofline"


def test_an_op_type_never_seen_gets_the_device_s_roofline(estimators: Estimators) -> None:
    estimate = estimators.estimate(matmul(64, 64, 64))
    assert (estimate.source, estimate.method) == ("unknown", "roofline")
    assert estimate.high / estimate.duration > 1.5


def test_a_dtype_never_seen_gets_the_roofline_of_its_type_and_a_wide_interval() -> None:
    known = fit_estimators(timings_of(draw("dev.matmul.default", 30, 2)))
    estimate = known.estimate(matmul(100, 100, 100, dtype="bfloat16"))
    same = known.estimate(matmul(100, 100, 100))
    assert (estimate.source, estimate.method) == ("estimated", "roofline")
    assert estimate.high / estimate.low > same.high / same.low


def test_an_op_of_half_its_arguments_gets_the_roofline_of_its_type() -> None:
    """Traces of other programs hold the tensors alone, or nothing."""
    known = fit_estimators(timings_of(draw("dev.convolution.default", 30, 2)))
    whole = draw("dev.convolution.default", 31, 5)[-1]
    tensors = decode_arguments(whole.arguments)[0][:2]
    roofline = known.types[whole.name].roofline.log_time([describe(whole)])
    for arguments in ("", encode_arguments(tensors, {})):
        estimate = known.estimate(dataclasses.replace(whole, arguments=arguments))
        assert (estimate.source, estimate.method) == ("estimated", "roofline")
        assert np.log(estimate.duration) == pytest.approx(roofline[0])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_timings_of_a_type_give_a_roofline(count: int, timings: list[OpTiming]) -> None:
    ops = [matmul(256, 256, 256), matmul(128, 512, 128), matmul(512, 64, 512)][:count]
    known = fit_estimators(timings + timings_of(ops))
    estimate = known.estimate(matmul(1024, 1024, 1024))
    assert (estimate.source, estimate.method) == ("estimated", "roofline")
    assert estimate.low < device_time(matmul(1024, 1024, 1024)) < estimate.high
    assert estimate.duration == pytest.approx(device_time(matmul(1024, 1024, 1024)), rel=0.5)


def test_one_timing_is_enough() -> None:
    known = fit_estimators(timings_of([matmul(256, 256, 256)]))
    larger = known.estimate(matmul(512, 512, 512))
    assert 4 < larger.duration / device_time(matmul(256, 256, 256)) <= 8


def test_an_op_without_flops_and_bytes_takes_what_a_launch_takes(estimators: Estimators) -> None:
    estimate = estimators.estimate(view(1000))
    assert estimate.duration == pytest.approx(device_time(view(1000)), rel=0.05)
    nobody_recorded = estimators.estimate(Op("other", ""))
    assert 0 < nobody_recorded.low < nobody_recorded.duration < nobody_recorded.high < 1


def test_equal_shapes_of_many_attributes_are_fitted() -> None:
    shape = TensorArgument((64, 64), "float32")
    ops = [Op("dev.slice", encode_arguments([shape, 0, i], {}), 0, 0, 0) for i in range(20)]
    known = fit_estimators(timings_of(ops))
    other = Op("dev.slice", encode_arguments([shape, 0, 7, 9], {}), 0, 0, 0)
    assert known.estimate(other).duration == pytest.approx(device_time(other), rel=0.05)


def test_the_order_of_timings_and_of_ops_is_irrelevant(timings: list[OpTiming]) -> None:
    doubled = timings + timings_of(OPS[:10], seed=1)
    shuffled = random.Random(0).sample(doubled, len(doubled))
    ops = [add(rows, 77) for rows in range(20, 60)]
    forward, backward = fit_estimators(doubled), fit_estimators(shuffled)
    ahead = [forward.estimate(op) for op in ops]
    assert ahead == [backward.estimate(op) for op in ops[::-1]][::-1]


def test_excluded_ops_are_as_if_never_timed(timings: list[OpTiming]) -> None:
    out = OPS[:5]
    excluded = fit_estimators(timings, exclude=[(op.name, op.arguments) for op in out])
    never = fit_estimators([timing for timing in timings if timing.op not in out])
    assert [excluded.estimate(op) for op in OPS] == [never.estimate(op) for op in OPS]
    assert {excluded.estimate(op).source for op in out} <= {"interpolated", "estimated"}


def test_types_that_nobody_asks_for_get_a_roofline(timings: list[OpTiming]) -> None:
    both = timings + timings_of(draw("dev.matmul.default", 20, 1))
    one = fit_estimators(both, only=["dev.add.Tensor"])
    assert one.types["dev.matmul.default"].method == "roofline"
    assert one.estimate(matmul(300, 300, 300)).source == "estimated"
    assert one.types["dev.add.Tensor"].method == "gaussian"


def test_progress_counts_op_types(timings: list[OpTiming]) -> None:
    calls: list[tuple[int, int]] = []
    fit_estimators(timings, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 2**20), max_size=5), max_size=3),
    flops=st.integers(0, 10**18),
    moved=st.integers(0, 10**15),
    name=st.sampled_from(["dev.add.Tensor", "dev.view.default", "aten.convolution.default"]),
    more=st.lists(
        st.one_of(
            *(st.none(), st.booleans(), WHOLE, st.floats(), st.text(max_size=3)),
            st.lists(WHOLE, max_size=12),
        ),
        max_size=9,
    ),
)
def test_every_op_gets_a_positive_finite_duration_within_its_interval(
    estimators: Estimators,
    shapes: list[list[int]],
    flops: int,
    moved: int,
    name: str,
    more: list[object],
) -> None:
    tensors = [TensorArgument(tuple(shape), "float32") for shape in shapes]
    op = Op(name, encode_arguments([*tensors, *more, tensors], {}), flops, moved, moved)
    estimate = estimators.estimate(op)
    assert 0 < estimate.low <= estimate.duration <= estimate.high < math.inf


def refusal(timings: list[OpTiming], **options: object) -> str:
    with pytest.raises(InputError) as caught:
        fit_estimators(timings, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_fitted_is_refused(timings: list[OpTiming]) -> None:
    first = timings[0]
    two = dataclasses.replace(ENVIRONMENT, threads=2)
    other = dataclasses.replace(first, environment=two)
    warm = dataclasses.replace(first, cache="warm")
    nothing = dataclasses.replace(first, time=spread_of([0.0]))
    endless = dataclasses.replace(first, time=spread_of([1e300]))
    unreadable = dataclasses.replace(first, op=Op("dev.add.Tensor", "[1]"))
    assert refusal([]) == "no op timings to fit estimators to"
    assert "all 1 are held out" in refusal([first], exclude=[(first.op.name, first.op.arguments)])
    assert "two environments" in refusal([first, other])
    assert "threads 2, not 1" in refusal([first, other])
    assert "warm and cold caches" in refusal([first, warm])
    assert "the timing of dev.add.Tensor is 0 s" in refusal([nothing])
    assert "is 1e+300 s, not 0 or 1e-15 s" in refusal([endless])
    assert "the probe of dev.add.Tensor is 1e-200 s" in refusal(
        [dataclasses.replace(first, probe=1e-200)]
    )
    assert "dev.add.Tensor: not the arguments of an op" in refusal([unreadable])
    assert 'did you mean "gaussian"?' in refusal(timings, method="gausian")
    assert "at least 2 folds" in refusal(timings, folds=1)
