import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import diags_array, eye_array, kron
from scipy.sparse.linalg import spsolve

from paracosm.errors import InputError
from paracosm.relaxation.problems import Stencil, load_problem


def tridiagonal(before, middle, after, size):
    values = [float(before), float(middle), float(after)]
    return diags_array(values, offsets=[-1, 0, 1], shape=(size, size))


def dense(problem):
    return problem.A.toarray()


@pytest.mark.parametrize(("ny", "nx"), [(1, 1), (1, 5), (4, 1), (3, 4), (7, 7)])
def test_the_5_point_laplacian_is_a_kronecker_sum(ny, nx):
    second = [tridiagonal(-1, 2, -1, size) for size in (ny, nx)]
    expected = kron(second[0], eye_array(nx)) + kron(eye_array(ny), second[1])
    assert np.array_equal(dense(load_problem(f"laplace2d:{ny}x{nx}")), expected.toarray())


def test_the_7_point_laplacian_is_a_kronecker_sum():
    second = [tridiagonal(-1, 2, -1, size) for size in (2, 3, 4)]
    one = [eye_array(size) for size in (2, 3, 4)]
    expected = (
        kron(kron(second[0], one[1]), one[2])
        + kron(kron(one[0], second[1]), one[2])
        + kron(kron(one[0], one[1]), second[2])
    )
    assert np.array_equal(dense(load_problem("laplace3d:2x3x4")), expected.toarray())


def test_the_9_point_laplacian_is_a_kronecker_product():
    ones = [tridiagonal(1, 1, 1, size) for size in (4, 5)]
    expected = 9 * eye_array(20) - kron(ones[0], ones[1])
    assert np.array_equal(dense(load_problem("laplace2d9:4x5")), expected.toarray())


def test_non_zeros_of_the_papers_grids():
    # Section 4.1: 4.6 a row on 10 x 10; section 5.1: 49,600 on 100 x 100.
    assert load_problem("laplace2d:10").A.nnz == 460
    assert load_problem("laplace2d:100").A.nnz == 49_600


def test_convection_diffusion_row_by_row():
    middle = 4  # the centre of 3 x 3; x runs along a row
    central = dense(load_problem("convection-diffusion:3,peclet=0.25"))[middle].reshape(3, 3)
    assert central.tolist() == [[0, -1, 0], [-1.25, 4, -0.75], [0, -1, 0]]
    upwind = dense(load_problem("convection-diffusion:3,peclet=2,angle=90,scheme=upwind"))
    assert upwind[middle].reshape(3, 3).tolist() == [[0, -5, 0], [-1, 8, -1], [0, -1, 0]]


def test_convection_diffusion_without_flow_is_the_laplacian():
    for scheme in ("central", "upwind"):
        still = load_problem(f"convection-diffusion:4,peclet=0,scheme={scheme}")
        assert np.array_equal(dense(still), dense(load_problem("laplace2d:4")))


def test_a_coefficient_that_vanishes_is_not_stored():
    problem = load_problem("convection-diffusion:4,peclet=1")
    assert problem.A.nnz == 80 - 16 - 12 - 4 + 4  # 5 points less the edges' 16, 12 downstream
    assert (problem.A.data != 0).all()


def test_the_heated_plate_by_hand():
    # Table 2: 100 above, 75 on the left, 50 on the right, 0 below.
    problem = load_problem("heat2d:3")
    assert problem.b.reshape(3, 3).tolist() == [[175, 100, 150], [75, 0, 50], [75, 0, 50]]
    assert not problem.x0.any()
    assert problem.rhs == "boundary"
    assert np.array_equal(dense(problem), dense(load_problem("laplace2d:3")))


def test_a_plate_between_equal_temperatures_has_that_temperature():
    problem = load_problem("heat2d:4x6,top=20,left=20,right=20,bottom=20")
    assert spsolve(problem.A.tocsc(), problem.b) == pytest.approx(np.full(24, 20.0))


def test_the_middle_of_a_square_plate_has_the_mean_temperature():
    # By symmetry: the four rotations of the boundary add up to a constant one.
    problem = load_problem("heat2d:5")
    middle = spsolve(problem.A.tocsc(), problem.b)[12]
    assert middle == pytest.approx((100 + 75 + 50 + 0) / 4)


@st.composite
def stencils(draw):
    axes = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(axes))
    offset = st.tuples(*[st.integers(-2, 2)] * axes)
    offsets = sorted(draw(st.sets(offset, min_size=1, max_size=6)))
    coefficients = draw(st.lists(st.floats(0.5, 2), min_size=len(offsets), max_size=len(offsets)))
    return Stencil(shape, np.array(offsets), np.array(coefficients))


@given(stencils(), st.integers(0, 2**32 - 1))
def test_a_stencil_applied_equals_its_matrix(stencil, seed):
    x = np.random.default_rng(seed).standard_normal(stencil.points)
    assert stencil.apply(x) == pytest.approx(stencil.matrix() @ x, abs=1e-12)


@given(stencils())
def test_a_stencils_matrix_entry_by_entry(stencil):
    expected = np.zeros((stencil.points, stencil.points))
    for point in np.ndindex(stencil.shape):
        for offset, coefficient in zip(stencil.offsets, stencil.coefficients, strict=True):
            other = tuple(np.add(point, offset))
            if all(0 <= at < size for at, size in zip(other, stencil.shape, strict=True)):
                row = np.ravel_multi_index(point, stencil.shape)
                expected[row, np.ravel_multi_index(other, stencil.shape)] += coefficient
    matrix = stencil.matrix()
    assert np.array_equal(matrix.toarray(), expected)
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        assert (np.diff(matrix.indices[start:end]) > 0).all()


@pytest.mark.parametrize(
    "spec",
    [
        "laplace2d:3x4",
        "laplace2d9:4",
        "laplace3d:3",
        "convection-diffusion:4,peclet=2,angle=30",
        "heat2d:3",
    ],
)
def test_every_grid_problem_has_its_stencil(spec):
    problem = load_problem(spec, rhs="ones-solution")
    x = np.random.default_rng(0).standard_normal(problem.n)
    assert problem.stencil is not None
    assert problem.stencil.apply(x) == pytest.approx(problem.A @ x)
    assert problem.A.indices.dtype == problem.A.indptr.dtype == np.int32


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("laplac2d:10", 'unknown problem "laplac2d": did you mean "laplace2d"'),
        ("laplace2d", "a size is missing; write laplace2d:100"),
        ("laplace2d:ten", '"ten" is not a size'),
        ("laplace2d:0", '"0" is not a size'),
        (f"laplace2d:{'9' * 5000}", "is not a size"),
        ("laplace2d:-3", '"-3" is not a size'),
        ("laplace2d:2x3x4", "has 2 axes, not 3"),
        ("laplace2d:100000", "10,000,000,000 unknowns are too many"),
        ("laplace2d:10,peclet=1", "laplace2d has no options"),
        ("heat2d:10,topp=1", 'did you mean "top"'),
        ("heat2d:10,top", "write top=value"),
        ("heat2d:10,top=hot", "top"),
        ("convection-diffusion:10,angle=100", "angle must be 0 to 90 degrees"),
        ("convection-diffusion:10,peclet=-1", "peclet"),
        ("convection-diffusion:10,peclet=inf", "peclet must be finite"),
        ("convection-diffusion:10,scheme=centrl", 'did you mean "central"'),
    ],
)
def test_specifications_that_cannot_be(spec, words):
    with pytest.raises(InputError) as error:
        load_problem(spec)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_option_without_effect_is_refused():
    with pytest.raises(InputError, match="no effect"):
        load_problem("heat2d:3,top=20", rhs="uniform")
    with pytest.raises(InputError, match="belongs to heat2d"):
        load_problem("laplace2d:3", rhs="boundary")
