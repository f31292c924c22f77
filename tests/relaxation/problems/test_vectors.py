import numpy as np
import pytest
from scipy.io import mmwrite

from paracosm.errors import InputError
from paracosm.relaxation.problems import load_problem, problem_from


def test_the_default_right_hand_side_is_that_of_section_4_1():
    problem = load_problem("laplace2d:40", seed=3)
    assert problem.rhs == "uniform"
    assert np.linalg.norm(problem.b) == pytest.approx(1, rel=1e-15)
    # Uniform on (-0.5, 0.5) before it is normalised: its norm is then near sqrt(n / 12).
    scaled = problem.b * np.sqrt(problem.n / 12)
    assert abs(scaled).max() == pytest.approx(0.5, rel=0.05)
    assert abs(scaled.mean()) < 0.05
    assert problem.solution is None


def test_the_seed_decides_and_streams_are_separate():
    first = load_problem("laplace2d:10", start="random", seed=1)
    again = load_problem("laplace2d:10", start="random", seed=1)
    other = load_problem("laplace2d:10", start="random", seed=2)
    assert np.array_equal(first.b, again.b)
    assert np.array_equal(first.x0, again.x0)
    assert not np.array_equal(first.b, other.b)
    assert not np.array_equal(first.x0, other.x0)
    assert abs(np.corrcoef(first.b, first.x0)[0, 1]) < 0.5
    # The right-hand side does not depend on how the iteration starts.
    assert np.array_equal(first.b, load_problem("laplace2d:10", seed=1).b)


def test_the_solution_of_section_5_1_is_one_everywhere():
    problem = load_problem("laplace2d:3", rhs="ones-solution")
    assert problem.solution.tolist() == [1.0] * 9
    # A 1 counts the neighbours that a point lacks.
    assert problem.b.reshape(3, 3).tolist() == [[2, 1, 2], [1, 0, 1], [2, 1, 2]]


def test_ones():
    problem = load_problem("laplace2d:3", rhs="ones")
    assert problem.b.tolist() == [1.0] * 9
    assert problem.solution is None


def test_vectors_from_files(tmp_path):
    values = np.arange(4.0)
    np.save(tmp_path / "b.npy", values)
    mmwrite(tmp_path / "x.mtx", values[:, None])
    problem = load_problem(
        "laplace2d:2", rhs=str(tmp_path / "b.npy"), start=str(tmp_path / "x.mtx")
    )
    assert problem.b.tolist() == problem.x0.tolist() == [0, 1, 2, 3]
    assert problem.rhs.endswith("b.npy")


def test_vectors_that_cannot_be_used(tmp_path):
    def refused(values):
        np.save(tmp_path / "b.npy", values)
        with pytest.raises(InputError) as error:
            load_problem("laplace2d:2", rhs=str(tmp_path / "b.npy"))
        return str(error.value)

    assert "b.npy: it has 3 entries, but the matrix has 4 rows" in refused(np.ones(3))
    assert "1 entries are NaN or infinite, the first is entry 3" in refused([1, 1, np.nan, 1])
    assert "a vector, not of shape (2, 2)" in refused(np.ones((2, 2)))
    assert "real numbers, not complex128" in refused(np.ones(4, complex))
    assert "not a NumPy file of numbers" in refused(np.array([object()] * 4))
    (tmp_path / "b.npy").write_text("1 2 3 4")
    with pytest.raises(InputError, match=r"NumPy's \.npy and MATLAB's \.mat are read"):
        load_problem("laplace2d:2", rhs=str(tmp_path / "b.npy"))
    with pytest.raises(InputError, match=r"missing\.npy: no such file"):
        load_problem("laplace2d:2", start="missing.npy")


def test_misspelt_names():
    with pytest.raises(InputError, match='did you mean "uniform"'):
        load_problem("laplace2d:2", rhs="unifrom")
    with pytest.raises(InputError, match='did you mean "zeros"'):
        load_problem("laplace2d:2", start="zero")


def test_vectors_at_hand():
    problem = problem_from(np.diag([2.0, 4.0]), [2, 4], [[5], [6]], solution=[1, 1])
    assert problem.b.tolist() == [2, 4]
    assert problem.x0.tolist() == [5, 6]
    assert problem.solution.tolist() == [1, 1]
    with pytest.raises(InputError, match="right-hand side: it has 3 entries"):
        problem_from(np.eye(2), [1, 2, 3])
    with pytest.raises(InputError, match="first iterate: it has 1 entries"):
        problem_from(np.eye(2), [1, 2], [1])


def test_without_vectors_the_solution_is_one_and_the_start_zero():
    problem = problem_from([[2, 1], [0, 4]])
    assert problem.b.tolist() == [3, 4]
    assert problem.solution.tolist() == [1, 1]
    assert problem.x0.tolist() == [0, 0]
