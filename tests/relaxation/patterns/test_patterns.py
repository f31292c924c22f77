import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array

from paracosm.errors import InputError
from paracosm.relaxation.partition import pattern_from_blocks
from paracosm.relaxation.patterns import parse_patterns
from paracosm.relaxation.problems import load_problem, problem_from


def parse_pattern(text, problem, processors, seed=0):
    return parse_patterns(text).dealt(problem, processors, seed)[0][1]


def edge_cut(A, pattern):
    """Return how many pairs of coupled rows lie in different blocks of a partition."""
    owner = np.empty(A.shape[0], dtype=int)
    for index in range(pattern.blocks):
        owner[pattern.block(index)] = index
    row, column = (abs(A) + abs(A.T)).tocoo().coords
    return int(np.sum(owner[row] != owner[column])) // 2


def blocks(pattern):
    return [pattern.block(index).tolist() for index in range(pattern.blocks)]


def ten_rows():
    return load_problem("laplace2d:1x10")


def test_contiguous_by_hand():
    pattern = parse_pattern("contiguous", ten_rows(), 4)
    assert blocks(pattern) == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    assert (pattern.name, pattern.choice, pattern.processors) == ("contiguous", "fixed", 4)


def test_cyclic_by_hand():
    pattern = parse_pattern("cyclic", ten_rows(), 3)
    assert blocks(pattern) == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_overlapping_by_hand():
    pattern = parse_pattern("overlapping(rows=2)", ten_rows(), 2)
    assert blocks(pattern) == [[0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 8, 9]]
    assert parse_pattern("overlapping", ten_rows(), 5).block(1).tolist() == [1, 2, 3, 4]


def test_random_blocks():
    pattern = parse_pattern("random(blocks=5)", ten_rows(), 2)
    assert blocks(pattern) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert (pattern.choice, pattern.processors, pattern.blocks) == ("random", 2, 5)
    assert parse_pattern("random", ten_rows(), 2).blocks == 2


def test_rotating_blocks():
    pattern = parse_pattern("rotating", ten_rows(), 2)
    assert (pattern.choice, pattern.processors, pattern.blocks) == ("cyclic", 2, 4)
    assert parse_pattern("rotating(5)", ten_rows(), 2).blocks == 5
    assert parse_pattern("rotating", ten_rows(), 7).blocks == 10  # no more than there are rows


def test_equal_work_by_hand():
    # An arrow: the first row has 10 non-zeros, the others 2; 28 in all.
    arrow = np.eye(10) * 10
    arrow[0] = arrow[:, 0] = 1
    arrow[0, 0] = 10
    pattern = parse_pattern("nonzeros", problem_from(arrow), 2)
    assert blocks(pattern) == [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]]
    # Three blocks: shares of 9.33 end nearest to 10 and 18; the first row is more than a share.
    assert [len(block) for block in blocks(parse_pattern("nonzeros", problem_from(arrow), 3))] == [
        1,
        4,
        5,
    ]


KINDS = ["contiguous", "nonzeros", "graph(bisection)", "cyclic", "random", "rotating"]


@st.composite
def matrices(draw):
    """A sparse matrix with full diagonal, not symmetric, often in several components."""
    n = draw(st.integers(1, 40))
    index = st.integers(0, n - 1)
    entries = draw(st.lists(st.tuples(index, index), max_size=3 * n))
    matrix = np.eye(n)
    for row, column in entries:
        matrix[row, column] = 1.0
    return problem_from(matrix)


@settings(deadline=None)  # the first call compiles
@given(matrices(), st.sampled_from(KINDS), st.data())
def test_every_row_is_in_exactly_one_block(problem, kind, data):
    processors = data.draw(st.integers(1, problem.n))
    pattern = parse_pattern(kind, problem, processors)
    sizes = np.diff(pattern.pointer)
    assert sorted(pattern.rows) == list(range(problem.n))
    assert pattern.pointer[0] == 0
    assert pattern.pointer[-1] == problem.n
    assert sizes.min() >= 1
    assert pattern.processors == processors <= pattern.blocks
    assert pattern.pointer.dtype == pattern.rows.dtype == np.int64
    if kind != "nonzeros":
        assert sizes.max() - sizes.min() <= 1
    for block in blocks(pattern):
        assert block == sorted(block)


@given(matrices(), st.data())
def test_equal_work_differs_by_less_than_the_heaviest_row(problem, data):
    processors = data.draw(st.integers(1, problem.n))
    pattern = parse_pattern("nonzeros", problem, processors)
    ends = problem.A.indptr[pattern.pointer]
    share = problem.A.nnz / processors
    heaviest = np.diff(problem.A.indptr).max()
    alone = np.diff(pattern.pointer) == 1
    assert (np.diff(ends)[~alone] <= share + heaviest).all()


@given(matrices(), st.integers(0, 5), st.data())
def test_overlapping_blocks_hold_the_contiguous_ones(problem, extra, data):
    processors = data.draw(st.integers(1, problem.n))
    inner = parse_pattern("contiguous", problem, processors)
    outer = parse_pattern(f"overlapping(rows={extra + 1})", problem, processors)
    for index in range(processors):
        first, last = inner.block(index)[[0, -1]]
        expected = range(max(0, first - extra - 1), min(problem.n, last + extra + 2))
        assert outer.block(index).tolist() == list(expected)


def shuffled_grid(size, seed=0):
    A = load_problem(f"laplace2d:{size}").A.tocoo()
    new = np.random.default_rng(seed).permutation(size**2)
    row, column = A.coords
    return problem_from(coo_array((A.data, (new[row], new[column])), shape=A.shape))


def test_bisection_finds_the_grid_in_a_shuffled_matrix():
    problem = shuffled_grid(30)
    cuts = {
        kind: edge_cut(problem.A, parse_pattern(kind, problem, 9))
        for kind in ("cyclic", "contiguous", "graph(bisection)")
    }
    # 1740 edges, of which a blind deal cuts 8 in 9; nine squares of 10 x 10 would cut 120.
    assert cuts["cyclic"] > 1400
    assert cuts["contiguous"] > 1400
    assert 120 <= cuts["graph(bisection)"] < 300


def test_bisection_separates_components():
    block = np.eye(4) * 4 - np.ones((4, 4))
    apart = problem_from(np.kron(np.eye(6), block))
    for processors in (2, 3, 6):
        pattern = parse_pattern("graph(bisection)", apart, processors)
        assert edge_cut(apart.A, pattern) == 0


def test_metis_where_it_is_installed():
    problem = shuffled_grid(30)
    pattern = parse_pattern("graph(method=metis)", problem, 9, seed=1)
    assert sorted(pattern.rows) == list(range(900))
    assert edge_cut(problem.A, pattern) < edge_cut(
        problem.A, parse_pattern("graph(bisection)", problem, 9)
    )
    assert parse_pattern("graph", problem, 9).name == "graph(method=metis)"


def test_metis_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    with pytest.raises(ImportError, match=r'pip install "paracosm\[metis\]"'):
        parse_pattern("graph(method=metis)", ten_rows(), 2)


def test_a_schedule_of_patterns():
    text = "contiguous; random(blocks=5) after 100ms;cyclic after 2s"
    schedule = parse_patterns(text).dealt(ten_rows(), 2)
    assert str(parse_patterns(text)) == text
    assert [(time, pattern.name) for time, pattern in schedule] == [
        (0.0, "contiguous"),
        (0.1, "random(blocks=5)"),
        (2.0, "cyclic"),
    ]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("contiguous after 1s", "the first pattern holds from the beginning"),
        ("contiguous; cyclic", "say since when: cyclic after 100s"),
        ("contiguous; cyclic after 2s; random after 1s", "the times must ascend"),
        ("contiguous; cyclic after 0s", "the times must ascend"),
        ("contiguous; cyclic after inf", "the times must ascend"),
        ("contiguous; cyclic after soon", "soon"),
        ("contiguous;", 'a pattern is missing beside ";"'),
        ("contigous", 'unknown pattern "contigous": did you mean "contiguous"'),
        ("random(200", "as a pattern: write name"),
        ("random(block=3)", 'did you mean "blocks"'),
        ("random(blocks=many)", 'blocks must be a whole number, not "many"'),
        ("random(blocks=3, blocks=4)", "blocks is given twice"),
        ("random(3, 4)", "random takes the parameters blocks, got 2 values"),
        ("random(blocks=1)", "blocks must be from 2 (processors) to 10 (rows), not 1"),
        ("rotating(blocks=11)", "blocks must be from 2 (processors) to 10 (rows), not 11"),
        ("cyclic(2)", "cyclic takes no parameters, got 1 values"),
        ("overlapping(rows=0)", "rows must be 1 or more, not 0"),
        ("overlapping(rows=9223372036854775808)", "must be a whole number, not"),
        ("graph(method=metas)", 'did you mean "metis"'),
    ],
)
def test_patterns_that_cannot_be(spec, words):
    with pytest.raises(InputError) as error:
        parse_patterns(spec).dealt(ten_rows(), 2)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [*KINDS, "overlapping"])
def test_as_many_processors_as_rows_and_no_more(kind):
    problem = load_problem("laplace2d:10")
    assert parse_pattern(kind, problem, 100).blocks == 100
    with pytest.raises(InputError) as error:
        parse_pattern(kind, problem, 200)
    assert str(error.value) == "more processors (200) than rows (100): give at most 100"
    with pytest.raises(InputError, match="processors: give 1 or more, not 0"):
        parse_pattern(kind, problem, 0)


def test_blocks_of_the_users_own():
    pattern = pattern_from_blocks([[2, 0], [1, 2]], 3)
    assert blocks(pattern) == [[2, 0], [1, 2]]
    assert (pattern.name, pattern.choice, pattern.processors) == ("custom", "fixed", 2)
    shared = pattern_from_blocks([[0], [1], [2]], 3, processors=2, choice="random")
    assert (shared.choice, shared.processors, shared.blocks) == ("random", 2, 3)


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([[0], []], {}, "block 1 must be a list of one row or more"),
        ([[0.5], [1]], {}, "block 0 must be a list"),
        ([[0, 1], [3]], {}, "block 1 names row 3, but rows are 0 to 2"),
        ([[0, -1], [1, 2]], {}, "block 0 names row -1"),
        ([[0, 0], [1, 2]], {}, "block 0 names a row twice"),
        ([[0], [2]], {}, "1 rows are in no block and would never be updated, the first of them 1"),
        ([[0, 1, 2]], {"processors": 2}, "1 blocks are too few for 2 processors"),
        ([[0, 1], [2]], {"processors": 1}, "as many processors as blocks (2), not 1"),
    ],
)
def test_blocks_that_cannot_be(rows, options, words):
    with pytest.raises(InputError) as error:
        pattern_from_blocks(rows, 3, **options)
    assert words in str(error.value)
