import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag, csr_array

from paracosm.errors import InputError
from paracosm.relaxation.problems import load_matrix, load_problem, problem_from
from paracosm.relaxation.spectrum import (
    iteration_matrix,
    iteration_radius,
    spectral_radius,
)

MATRICES = Path(__file__).parents[1] / "data" / "matrices"
GENEROUS = 9e9  # numbers read


def radius(matrix):
    """The textbook's definition, by LAPACK."""
    return abs(np.linalg.eigvals(np.asarray(matrix))).max()


@pytest.mark.parametrize(
    ("file", "expected", "signed"),
    [
        # The first number: published for these matrices. The second: where it differs from it.
        ("gr_30_30.mtx.gz", "0.9923", None),
        ("mesh1e1.mtx", "0.7892", None),
        ("tomography.mtx.gz", "0.9672", None),
        ("fs_183_1.mtx", "0.8480", None),
        ("494_bus.mtx", "0.99997", None),
        ("pde900.mtx.gz", "1.142", "0.957"),
        ("LFAT5.mtx", "1.363", "0.987"),
        ("bcsstk16.mtx.gz", "2.828", None),
    ],
)
def test_real_matrices(file, expected, signed):
    found = iteration_radius(load_matrix(MATRICES / file).A, budget=GENEROUS)
    digits = len(expected.split(".")[1])
    assert f"{found.value:.{digits}f}" == expected
    assert found.lower <= found.value <= found.upper
    assert found.upper - found.lower < 1e-8
    assert found.below_one == (float(expected) < 1)
    assert found.signed <= found.value * (1 + 1e-9)
    if signed:
        assert f"{found.signed:.3f}" == signed


def test_rho_of_the_signed_matrices_by_lapack():
    for file in ("mesh1e1.mtx", "LFAT5.mtx", "fs_183_1.mtx", "tomography.mtx.gz"):
        A = load_matrix(MATRICES / file).A
        dense = np.eye(A.shape[0]) - A.toarray() / A.diagonal()[:, None]
        found = iteration_radius(A, budget=GENEROUS)
        assert found.signed == pytest.approx(radius(dense), rel=1e-6), file
        assert found.value == pytest.approx(radius(abs(dense)), rel=1e-6), file


@pytest.mark.parametrize("size", [1, 2, 3, 10, 41])
@pytest.mark.parametrize("known", [True, False])
def test_the_laplacians_closed_form(size, known):
    problem = load_problem(f"laplace2d:{size}")
    stencil = problem.stencil if known else None
    found = iteration_radius(problem.A, stencil=stencil, budget=GENEROUS)
    assert found.value == pytest.approx(math.cos(math.pi / (size + 1)), abs=1e-8)
    assert found.signed == pytest.approx(found.value, rel=1e-9)
    assert found.below_one


def test_closed_forms_on_other_grids():
    def cosine(size):
        return math.cos(math.pi / (size + 1))

    def found(spec, **options):
        problem = load_problem(spec)
        by_vector = iteration_radius(problem.A, stencil=problem.stencil, **options)
        without = iteration_radius(problem.A, budget=GENEROUS, **options)
        assert by_vector.value == pytest.approx(without.value, rel=1e-7)
        return by_vector.value

    assert found("laplace2d:7x9") == pytest.approx((cosine(7) + cosine(9)) / 2)
    assert found("laplace3d:4x5x6") == pytest.approx((cosine(4) + cosine(5) + cosine(6)) / 3)
    both = (1 + 2 * cosine(6)) * (1 + 2 * cosine(8)) - 1
    assert found("laplace2d9:6x8") == pytest.approx(both / 8)
    # Tridiagonal Toeplitz: 2 sqrt(before after) cos, here before, after = 1 +- 2 along x.
    skew = (cosine(9) + math.sqrt(3) * cosine(9)) / 2
    assert found("convection-diffusion:9,peclet=2") == pytest.approx(skew)
    assert found("laplace2d:9", omega=0.5) == pytest.approx(0.5 + 0.5 * cosine(9))
    assert found("laplace2d:9", omega=1.2) == pytest.approx(0.2 + 1.2 * cosine(9))
    by_residual = found("laplace2d:9", method="richardson", omega=0.3)
    assert by_residual == pytest.approx(0.2 + 1.2 * cosine(9))  # 1 - 0.3 * 4 = -0.2


def test_convection_that_converges_synchronously_only():
    problem = load_problem("convection-diffusion:9,peclet=2")
    found = iteration_radius(problem.A, stencil=problem.stencil, budget=GENEROUS)
    # sqrt(1 + 2) sqrt(1 - 2) is imaginary: |1 + i sqrt(3)| / 2 = 1.
    assert found.signed == pytest.approx(math.cos(math.pi / 10), rel=1e-6)
    assert found.below_one is False
    assert "Theorem 1 does not apply" in found.sentence
    assert "synchronous updates converge: rho(C) = 0.9511" in found.sentence


@st.composite
def nonnegative(draw, largest=8):
    """Nonnegative, often reducible or periodic."""
    n = draw(st.integers(1, largest))
    entry = st.one_of(st.just(0.0), st.just(0.0), st.floats(0.1, 3.0))
    return np.array(draw(st.lists(entry, min_size=n * n, max_size=n * n))).reshape(n, n)


@settings(deadline=None)
@given(nonnegative(), st.data())
def test_any_matrix_against_lapack(matrix, data):
    n = matrix.shape[0]
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=n * n, max_size=n * n))
    signed = matrix * np.reshape(signs, (n, n))
    found = spectral_radius(csr_array(signed), budget=GENEROUS)
    expected = radius(matrix)
    # Defective eigenvalues (triangular blocks) cost LAPACK half the digits and more.
    assert found.lower - 1e-3 <= expected <= found.upper + 1e-3
    assert found.value == pytest.approx(expected, abs=1e-3)
    assert found.signed == pytest.approx(radius(signed), abs=1e-2)
    assert found.lower <= found.value <= found.upper
    if abs(expected - 1) > 1e-2:
        assert found.below_one == (expected < 1)


@settings(deadline=None)
@given(nonnegative(), nonnegative())
def test_independent_blocks_have_the_larger_radius(first, second):
    def of(matrix):
        return spectral_radius(csr_array(matrix), budget=GENEROUS).value

    joined = of(block_diag([first, second], format="csr"))
    assert joined == pytest.approx(max(of(first), of(second)), rel=1e-8)


def test_many_blocks_and_lone_rows():
    # Two-cycles of radius sqrt(a b) beside rows that nobody reads back.
    weights = np.linspace(0.1, 0.9, 500)
    blocks = [np.array([[0.0, weight], [weight, 0.0]]) for weight in weights]
    matrix = block_diag([*blocks, [[0.3]]], format="lil")
    matrix[0, 1000] = 5.0  # couples a block to the lone row, one way
    found = spectral_radius(csr_array(matrix), budget=GENEROUS)
    assert found.value == pytest.approx(0.9)


def test_a_large_block_beside_a_lone_row_that_rules():
    # 102 rows, not symmetric, not solved by their row sums; the lone row has the largest radius.
    cycle = np.roll(np.eye(101), 1, axis=0) * np.linspace(0.2, 0.6, 101)
    cycle[0, 0] = 0.3
    for lone in (0.8, 0.1):
        matrix = block_diag([cycle, [[lone]]], format="csr")
        for budget in (GENEROUS, 0.0):
            found = spectral_radius(csr_array(matrix), budget=budget)
            assert found.lower <= max(lone, radius(cycle)) * (1 + 1e-9)
            assert found.upper >= max(lone, radius(cycle)) * (1 - 1e-9)
        assert spectral_radius(csr_array(matrix), budget=GENEROUS).value == pytest.approx(
            max(lone, radius(cycle))
        )


def test_a_vector_that_misses_a_block():
    first, second = np.array([[0.1, 0.2], [0.3, 0.1]]), np.array([[0.1, 0.9], [0.5, 0.1]])
    matrix = csr_array(block_diag([first, second]))
    found = spectral_radius(matrix, guess=np.array([0.0, 0.0, 1.0, 1.0]))
    assert found.value == pytest.approx(radius(second))


def test_a_strictly_triangular_matrix_has_radius_zero():
    found = iteration_radius(problem_from(np.tril(np.ones((50, 50)) * 9)).A)
    assert (found.value, found.lower, found.upper, found.signed) == (0, 0, 0, 0)
    assert found.below_one


def test_a_periodic_matrix():
    cycle = csr_array(np.roll(np.eye(7), 1, axis=0) * 0.9)
    assert spectral_radius(cycle, budget=GENEROUS).value == pytest.approx(0.9)


def test_eigenvectors_that_span_many_orders():
    matrix = np.diag(np.full(39, 100.0), 1) + np.diag(np.full(39, 1e-4), -1)
    found = spectral_radius(csr_array(matrix), budget=GENEROUS)
    assert found.value == pytest.approx(2 * 0.1 * math.cos(math.pi / 41), rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_entries_near_the_largest_number():
    found = spectral_radius(csr_array(np.full((3, 3), 1e308)), budget=GENEROUS)
    assert found.lower == math.inf


def test_steps_that_overflow_leave_rho_of_c_unknown():
    A = load_problem("laplace2d:5").A
    found = iteration_radius(A, "second-order-richardson", omega=1e308, beta=1e300)
    assert (found.lower, found.signed, found.below_one) == (math.inf, None, False)


def test_momentum_against_lapack():
    A = load_problem("laplace2d:5").A
    n = A.shape[0]
    first = 1.3 * np.eye(n) - 0.2 * A.toarray()
    expected = np.block([[first, -0.3 * np.eye(n)], [np.eye(n), np.zeros((n, n))]])
    C = iteration_matrix(A, "second-order-richardson", omega=0.2, beta=0.3)
    assert C.toarray() == pytest.approx(expected)
    for stencil in (None, load_problem("laplace2d:5").stencil):
        found = iteration_radius(
            A, "second-order-richardson", omega=0.2, beta=0.3, stencil=stencil, budget=GENEROUS
        )
        assert found.value == pytest.approx(radius(abs(expected)))
        assert found.signed == pytest.approx(radius(expected))


def test_the_iteration_matrix_of_jacobi_is_that_of_equation_21():
    A = np.array([[4.0, -1, 2], [1, -5, 0], [0, 3, 8]])
    D = np.diag(np.diag(A))
    expected = -np.linalg.inv(D) @ (A - D)
    csr = problem_from(A).A
    assert iteration_matrix(csr, "jacobi").toarray() == pytest.approx(expected)
    damped = 0.3 * np.eye(3) + 0.7 * expected
    for method in ("jacobi", "sor", "gauss-seidel"):
        found = iteration_matrix(csr, method, omega=0.7).toarray()
        assert found == pytest.approx(damped)
    assert csr.toarray().tolist() == A.tolist()


def test_without_a_budget_there_are_bounds_and_diagonal_dominance_still_decides():
    problem = load_problem("laplace2d:30")
    found = iteration_radius(problem.A, budget=0.0)
    exact = math.cos(math.pi / 31)
    assert found.value is None
    assert found.lower <= exact <= found.upper <= 1 + 1e-12
    assert found.below_one
    assert "below 1 by diagonal dominance: every asynchronous schedule converges" in found.sentence


def test_without_a_budget_and_dominance_nothing_is_decided():
    A = load_matrix(MATRICES / "pde900.mtx.gz").A
    found = iteration_radius(A, budget=0.0)
    assert found.value is None
    assert found.lower < 1.1421 < found.upper
    if found.below_one is None:
        assert "not decided" in found.sentence


def test_a_singular_matrix_has_radius_one():
    # Neumann's boundary conditions: every row sum of |C| is 1.
    A = np.diag([1.0, 2, 2, 1]) - np.diag(np.ones(3), 1) - np.diag(np.ones(3), -1)
    found = iteration_radius(csr_array(A))
    assert found.value == pytest.approx(1)
    assert found.below_one is False
    assert "1.0000 >= 1" in found.sentence


def test_large_matrices_symmetric_and_not():
    size = 110  # above what is factored
    problem = load_problem(f"laplace2d:{size}")
    found = iteration_radius(problem.A, budget=GENEROUS / 10)
    assert found.value == pytest.approx(math.cos(math.pi / (size + 1)), abs=1e-9)
    assert found.lower <= math.cos(math.pi / (size + 1)) + 1e-12 <= found.upper + 1e-12
    # Similar to a matrix whose row sums are all 0.7, by random scales.
    rng = np.random.default_rng(0)
    n = 12_000
    columns = rng.integers(0, n, 4 * n)
    weights = rng.dirichlet(np.ones(4), n).ravel() * 0.7
    scale = rng.uniform(0.5, 2, n)
    rows = np.repeat(np.arange(n), 4)
    matrix = csr_array((weights * scale[columns] / scale[rows], (rows, columns)), shape=(n, n))
    found = spectral_radius(matrix, budget=GENEROUS)
    assert found.value == pytest.approx(0.7, rel=1e-6)
    assert found.below_one


def test_page_rank():
    links = np.array([[0, 1, 1], [0.5, 0, 0], [0.5, 0, 0]])  # column-stochastic
    found = spectral_radius(csr_array(0.85 * links))
    assert found.value == pytest.approx(0.85)
    assert found.signed == found.value


def test_sentences():
    assert (
        iteration_radius(load_problem("laplace2d:10").A).sentence
        == "rho(|C|) = 0.9595 < 1: every asynchronous schedule converges (Theorem 1)"
    )
    bus = iteration_radius(load_matrix(MATRICES / "494_bus.mtx").A, budget=GENEROUS)
    assert bus.sentence.startswith("rho(|C|) = 0.99997 < 1: ")  # never "1.0000 < 1"
    dam = iteration_radius(load_matrix(MATRICES / "bcsstk16.mtx.gz").A, budget=GENEROUS)
    assert dam.sentence.startswith("rho(|C|) = 2.8281 >= 1: Theorem 1 does not apply")
    assert "synchronous updates do not converge: rho(C) = 2.3845" in dam.sentence


def test_what_cannot_be():
    with pytest.raises(InputError, match='did you mean "richardson"'):
        iteration_radius(csr_array(np.eye(2)), "richardsen")
    with pytest.raises(InputError, match="jacobi divides by the diagonal, which is zero in row 2"):
        iteration_radius(csr_array(np.array([[1.0, 1.0], [1.0, 0.0]])))
