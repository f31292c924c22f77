"""What is proved to converge is not called diverged, and numbers at the ends of floating point give
the same run as others, or a line.
"""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.relaxation import relax
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import norm_of_vector, problem_from
from paracosm.relaxation.run import run_relaxation
from paracosm.relaxation.spectrum import iteration_radius
from paracosm.relaxation.threads.run import run_threads


def nilpotent(n: int = 20, entry: float = 16.0) -> Any:
    """Return A = I - N, N with `entry` beside the diagonal: N^n = 0, so rho(|C|) = 0."""
    return (sp.eye_array(n) - entry * sp.diags_array([1.0], offsets=[1], shape=(n, n))).tocsr()


def last_unit(n: int = 20) -> Any:
    b = np.zeros(n)
    b[-1] = 1.0
    return b


@pytest.mark.parametrize(
    "given",
    [
        {"processors": 1},
        {"processors": 3},
        {"processors": 2, "synchronous": True},
        {"processors": 2, "read": "gauss-seidel"},
        {"processors": 2, "method": "gauss-seidel"},
        {"processors": 2, "method": "sor(1.0)"},
        {"processors": 2, "method": "block-jacobi"},
        {"processors": 2, "method": "richardson(1)"},
        {"processors": 2, "latency": "1ms"},
        {"processors": 2, "norm": "inf"},
        {"processors": 2, "fault": "uniform(1e12, 1e13) at 5ms"},
        {"processors": 2, "detect": "local(every=2)"},
    ],
    ids=str,
)
def test_growth_on_the_way_is_no_divergence_where_convergence_is_proved(given: Any) -> None:
    """After k sweeps of Jacobi from 0 the residual is N^k b, of norm 16^k: 7.6e22 at k = 19, and
    exactly 0 at k = 20, since N^20 = 0.
    """
    found = relax(nilpotent(), last_unit(), np.zeros(20), time="10ms", **given)
    assert found.status == "converged"
    assert found.residual <= 1e-6
    if given == {"processors": 1}:
        assert found.residuals.max() == 16.0**19
        assert found.sweeps[-1] == 20


def test_nor_for_the_synchronous_baseline() -> None:
    problem = problem_from(nilpotent(), last_unit(), np.zeros(20))
    summary = run_relaxation(RelaxConfig(problem=problem, processors=4, time="10ms")).summary
    assert summary.twin is not None
    assert (summary.status, summary.twin.status) == ("converged", "converged")


def test_a_synchronous_iteration_may_grow_where_rho_of_c_is_below_one() -> None:
    """C = [[0.9, 1e12], [0, -0.9]] has eigenvalues 0.9 and -0.9; |C| as well, but the block below
    makes rho(|C|) = 1.1 > 1, and rho(C) = 0.1: |[[0.6, -0.5], [0.5, 0.6]]| has 1.1, and the
    rotation itself sqrt(0.61) = 0.78.
    """
    C = np.zeros((4, 4))
    C[:2, :2] = [[0.9, 1e12], [0.0, -0.9]]
    C[2:, 2:] = [[0.6, -0.5], [0.5, 0.6]]
    b = np.array([0.0, 1.0, 1.0, 0.0])  # the first residual; the second one is C b
    A = sp.csr_array(np.eye(4) - C)
    given = {"processors": 2, "time": "10ms", "method": "richardson(1)"}
    found = relax(A, b, np.zeros(4), synchronous=True, **given)
    radius = found.spectral_radius
    assert radius.value == pytest.approx(1.1)
    assert radius.signed == pytest.approx(0.9)
    assert found.residuals.max() == pytest.approx(1e12)
    assert found.status == "converged"


def test_where_nothing_is_proved_growth_counts_and_the_limit_is_a_flag() -> None:
    A = sp.csr_array([[1.0, -1.5], [-1.5, 1.0]])  # rho = 1.5
    given: dict[str, Any] = {"processors": 1, "time": "10ms"}
    b, x0 = np.ones(2), np.zeros(2)
    sweeps = {
        limit: relax(A, b, x0, growth_limit=limit, **given).sweeps[-1]
        for limit in (1e3, None, 1e30)
    }
    # The residual is 1.5^k times the first one; the limit is passed at the first k above it.
    expected = {limit: math.ceil(math.log(limit or 1e10) / math.log(1.5)) for limit in sweeps}
    assert sweeps == expected
    assert relax(A, b, x0, **given).status == "diverged"


def test_a_limit_that_was_given_stops_what_converges_and_does_not_call_it_diverged() -> None:
    found = relax(nilpotent(), last_unit(), np.zeros(20), processors=1, growth_limit=1e5)
    assert found.status == "stopped"
    assert "grown to 1.05e+06, by more than the growth limit of 100000" in found.reason  # 16^5
    assert "sure to converge" in found.reason


def test_overflow_ends_it_and_is_called_so() -> None:
    """The square of 16^k is 2^(8 k): too large, 2^1024, at k = 128."""
    found = relax(nilpotent(200), last_unit(200), np.zeros(200), processors=1)
    assert found.status == "diverged"
    assert found.sweeps[-1] == 128
    assert found.reason.startswith(
        "diverged: the residual is 1.34e+154, whose square is not finite"
    )
    assert found.reason.endswith("although it converges in exact arithmetic")
    doubled = relax(
        2 * np.eye(2), np.ones(2), processors=1, method="richardson(2)", growth_limit=1e300
    )
    assert doubled.status == "diverged"
    assert "not finite" in doubled.reason
    assert "exact" not in doubled.reason


def test_a_fault_in_the_matrix_ends_what_was_proved() -> None:
    """Less 7.5 or so in each entry, A is near [[-6.5, -8], [-8, -6.5]], with rho 1.2."""
    A = sp.csr_array([[1.0, -0.5], [-0.5, 1.0]])
    found = relax(
        A, np.ones(2), processors=1, time="10ms", fault="uniform(-8, -7) in A on 100% at 5ms"
    )
    assert found.status == "diverged"


def test_a_users_function_is_not_judged_by_jacobi() -> None:
    def doubled(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        out[:] = 2 * x[rows] + 3

    found = relax(np.eye(3), np.ones(3), processors=1, method=doubled)
    assert found.status == "diverged"
    assert found.spectral_radius is None


def test_local_solves_are_judged_with_their_factor() -> None:
    """omega = 3 of exact solves of a diagonal: x + 3 (b - x), which doubles the error."""
    found = relax(np.eye(4), np.ones(4), np.zeros(4), processors=2, method="block-jacobi(omega=3)")
    assert found.spectral_radius.value == pytest.approx(2.0)
    assert found.status == "diverged"


DENORMAL = "%%MatrixMarket matrix coordinate real general\n2 2 4\n" + "".join(
    f"{row} {column} {value}\n"
    for row, column, value in [(1, 1, 4e-310), (1, 2, -1e-310), (2, 1, -1e-310), (2, 2, 4e-310)]
)


def test_rho_of_a_diagonal_without_reciprocals(tmp_path: Path, capsys: Any) -> None:
    """|C| = [[0, 1/4], [1/4, 0]], whose radius is 1/4; 1 / 4e-310 is no number."""
    A = sp.csr_array([[4e-310, -1e-310], [-1e-310, 4e-310]])
    assert iteration_radius(A).value == pytest.approx(0.25)
    path = tmp_path / "denormal.mtx"
    path.write_text(DENORMAL)
    assert main(["relax", "--matrix", str(path)]) == 2
    line = capsys.readouterr().err
    assert "so small in 2 rows that its reciprocal is infinite: 1, 2" in line
    assert line.count("\n") == 1


def test_bounds_that_are_not_finite_are_said_in_words() -> None:
    C = sp.csr_array([[1e-300, 1e300], [1.0, 1.0]])  # |C| = [[0, inf], [1, 0]] to floating point
    found = iteration_radius(C)
    assert (found.lower, found.upper) == (1.0, math.inf)
    assert found.sentence.startswith("rho(|C|) is at least 1")
    assert "inf" not in found.sentence
    both = iteration_radius(sp.csr_array([[1e-300, 1e300], [1e300, 1e-300]]))
    assert both.sentence.startswith("rho(|C|) is larger than floating-point numbers")


METHODS = (
    *("jacobi", "jacobi(omega=0.7)", "gauss-seidel", "sor(1.2)", "block-jacobi", "richardson"),
    *("coordinate", "anderson"),
)


@settings(max_examples=60)
@given(
    power=st.integers(-1000, 1000),
    method=st.sampled_from(METHODS),
    norm=st.sampled_from([2, "inf"]),
    seed=st.integers(0, 3),
)
def test_scaling_by_a_power_of_two_changes_nothing_or_is_refused(
    power: int, method: str, norm: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    A = rng.uniform(-1, 1, (6, 6)) + 8 * np.eye(6)
    b = rng.uniform(-1, 1, 6)
    scale = 2.0**power

    def run(A: Any, b: Any) -> Any:
        return relax(
            A, b, processors=2, method=method, time="uniform(1ms, 2ms)", norm=norm, relative=True,
            tolerance=1e-8, seed=seed,
        )  # fmt: skip

    plain = run(A, b)
    assert plain.status == "converged"
    scaled = None
    with suppress(InputError) if abs(power) >= 400 else nullcontext():
        scaled = run(scale * A, scale * b)
    if scaled is None:
        return
    assert scaled.status == plain.status
    assert scaled.relaxations == plain.relaxations
    assert np.array_equal(scaled.x, plain.x)
    assert scaled.residual == pytest.approx(scale * plain.residual, rel=1e-9)
    one, other = scaled.spectral_radius, plain.spectral_radius
    assert (one is None) == (other is None)
    if one is not None:
        assert (one.value, one.lower, one.upper) == (other.value, other.lower, other.upper)


@pytest.mark.parametrize("power", [-1074, -1022, -1000, -500, 500, 1000, 1020])
def test_rho_does_not_depend_on_the_scale(power: int) -> None:
    A = sp.csr_array([[4.0, -1, 0], [-1, 4, -2], [0, -1, 8]])
    plain = iteration_radius(A)
    scaled = sp.csr_array(A.toarray() * 2.0**power)
    if scaled.nnz == A.nnz:
        assert iteration_radius(scaled).value == plain.value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"A": np.eye(2) * 1e-310}, "reciprocal is infinite"),
        ({"A": [[1e308, 1e308], [0, 1e308]], "method": "richardson"}, "omega is 0"),
        ({"A": np.eye(2), "b": [1e-200, 0]}, "first residual is 1e-200"),
        ({"A": np.eye(2), "b": [1e200, 0]}, "first residual is 1e+200"),
        ({"A": np.eye(2) * 1e-150, "b": [1, 1], "error_tolerance": 1}, "first error is 1e+150"),
        ({"A": np.eye(2) * 1e-310, "method": "block-jacobi"}, "pivots so small"),
        ({"A": np.eye(2) * 1e-10, "method": "jacobi(1e300)"}, "1e+300 / 1e-10 in row 1 is inf"),
    ],
)
def test_what_leaves_the_range_is_refused_with_the_reason(given: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        relax(given.pop("A"), given.pop("b", None), processors=1, **given)
    assert message in str(caught.value)


def test_a_residual_whose_square_is_zero_is_not_taken_for_zero() -> None:
    """x <- x / 2 from 1: the residual is 2^-k, whose square is 0 from k = 538 on."""
    halved = sp.csr_array([[1.0, -0.5], [-0.5, 1.0]])
    given: dict[str, Any] = {"processors": 1, "time": "10ms"}
    found = relax(halved, np.zeros(2), np.ones(2), tolerance=1e-300, **given)
    assert found.status == "stopped"
    assert "too small to be squared" in found.reason
    assert 0 < found.residual < 1e-140
    largest = relax(halved, np.zeros(2), np.ones(2), tolerance=1e-300, norm="inf", **given)
    assert (largest.status, largest.residual <= 1e-300) == ("converged", True)
    problem = problem_from(halved, np.zeros(2), np.ones(2))
    threads = run_threads(problem, "race", 1, 1e-300)
    assert threads.status == "stopped" or threads.residual <= 1e-300


def test_a_right_hand_side_of_zeros_is_solved_at_once() -> None:
    assert relax(np.eye(2), np.zeros(2), processors=1, relative=True).status == "converged"


def test_real_threads_refuse_it_too() -> None:
    for A, b in ((np.eye(2) * 1e-310, [1.0, 1.0]), (np.eye(2), [1e200, 1.0])):
        problem = problem_from(A, b, divides_by_diagonal=False)
        with pytest.raises(InputError, match="scale A and b"):
            run_threads(problem, "race", 1, 1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_norms_neither_overflow_nor_underflow(scale: float) -> None:
    assert norm_of_vector(scale * np.array([3.0, -4.0]), infinity=False) == pytest.approx(5 * scale)
    assert math.isnan(norm_of_vector(np.array([scale, np.nan]), infinity=False))
