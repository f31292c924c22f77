import bz2
import gzip
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmwrite
from scipy.sparse import coo_array

from paracosm.errors import InputError
from paracosm.relaxation.matrix_files import read_matrix_market
from paracosm.relaxation.problems import load_matrix, load_problem, problem_from

MATRICES = Path(__file__).parents[2] / "data" / "matrices"
GENERAL = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("file", "n", "nonzeros", "symmetric"),
    [
        ("494_bus.mtx", 494, 1_666, True),
        ("LFAT5.mtx", 14, 46, True),
        ("bcsstk16.mtx.gz", 4_884, 290_378, True),
        ("fs_183_1.mtx", 183, 998, False),
        ("gr_30_30.mtx.gz", 900, 7_744, True),
        ("mesh1e1.mtx", 48, 306, True),
        ("pde900.mtx.gz", 900, 4_380, False),
        ("tomography.mtx.gz", 500, 28_726, True),
    ],
)
def test_real_matrices(file, n, nonzeros, symmetric):
    problem = load_matrix(MATRICES / file, rhs="ones-solution")
    assert problem.name == file.removesuffix(".gz")
    assert problem.A.shape == (n, n)
    assert problem.A.nnz == nonzeros
    assert (abs(problem.A - problem.A.T).max() == 0) == symmetric
    assert problem.A.has_sorted_indices
    assert problem.A.dtype == np.float64
    assert problem.A.indices.dtype == np.int32
    assert problem.b == pytest.approx(problem.A.toarray().sum(axis=1), rel=1e-6, abs=1e-3)


def test_gr_30_30_is_the_nine_point_laplacian():
    found = load_matrix(MATRICES / "gr_30_30.mtx.gz").A
    assert abs(found - load_problem("laplace2d9:30").A).max() == 0


def write(folder, text, name="matrix.mtx"):
    path = folder / name
    path.write_text(text)
    return path


def test_duplicates_add_up_and_stored_zeros_go(tmp_path):
    text = GENERAL + "% a comment\n\n2 2 4\n1 1 1\n1 1 2\n2 2 4\n1 2 0.0\n"
    A = load_matrix(write(tmp_path, text)).A
    assert A.toarray().tolist() == [[3, 0], [0, 4]]
    assert A.nnz == 2


HEADER = "%%MatrixMarket matrix coordinate"
DENSE = "%%MatrixMarket matrix array real"


@pytest.mark.parametrize(
    ("text", "matrix"),
    [
        (f"{HEADER} real general\n2 2 3\n1 1 .5\n 2 2\t+5.\n\n1 1 -1E-1", [[0.4, 0], [0, 5]]),
        (f"{HEADER} integer symmetric\n2 2 2\r\n1 1 4\r\n2 1 -1\r\n", [[4, -1], [-1, 0]]),
        (f"{HEADER} real skew-symmetric\n2 2 1\n2 1 3\n", [[0, -3], [3, 0]]),
        (f"{DENSE} general\n2 3\n1\n2\n3\n4\n5\n6\n", [[1, 3, 5], [2, 4, 6]]),
        (f"{DENSE} symmetric\n2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
        (f"{DENSE} skew-symmetric\n3 3\n1\n2\n3\n", [[0, -1, -2], [1, 0, -3], [2, 3, 0]]),
    ],
)
def test_what_a_file_holds(tmp_path, text, matrix):
    path = tmp_path / "m.mtx"
    path.write_bytes(text.encode())
    read = read_matrix_market(path)
    assert (read if isinstance(read, np.ndarray) else read.toarray()).tolist() == matrix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a Matrix Market file"),
        ("1 2\n3 4\n", "not a Matrix Market file"),
        ("%%MatrixMarket tensor coordinate real general\n", "is not one of"),
        (f"{HEADER} complex general\n1 1 1\n1 1 1 0\n", "are complex"),
        (f"{HEADER} pattern general\n1 1 1\n1 1\n", "only the pattern"),
        (GENERAL, "cut off before the line of sizes"),
        (GENERAL + "% nothing else", "cut off before the line of sizes"),
        (GENERAL + "2 2\n1 1 1\n", 'must be "rows columns entries", not "2 2"'),
        (GENERAL + "9" * 5000 + " 2 2\n1 1 1\n2 2 1\n", 'must be "rows columns entries", not "999'),
        (GENERAL + "2 2 3\n1 1 1\n2 2", "cut off: 1 of 3 entries are there"),
        (GENERAL + "2 2 1\n1 1 1\n2 2 1\n", "more entries (2) than in its header (1)"),
        (GENERAL + "2 2 2\n1 1 1\n3 2 1\n", "matrix.mtx: "),
        (GENERAL + "2 2 2\n1 1 1\n2 2 x\n", "matrix.mtx: "),
        (GENERAL + "1 1 1\n1 1 1d3\n", 'line 3: "1 1 1d3" is no entry'),
        (GENERAL + "1 1 1\n1 1 0x1p3", 'line 3: "1 1 0x1p3" is no entry'),
        (f"{HEADER} integer general\n1 1 1\n\n1 1 4e1\n", "line 4"),
        (
            f"{HEADER} real symmetric\n2 2 3\n1 1 4\n2 1 1\n1 2 1\n",
            "both entries (2, 1) and (1, 2)",
        ),
        (f"{HEADER} real symmetric\n2 3 3\n1 1 4\n2 1 1\n2 2 1\n", "not square"),
        (
            "%%MatrixMarket matrix array real symmetric\n3 3\n1\n2\n3\n4\n5\n",
            "cut off: 5 of 6 entries",
        ),
        (GENERAL + "2 3 2\n1 1 1\n2 2 1\n", "must be square, not 2 x 3"),
        (
            GENERAL + "2 2 3\n1 1 1\n2 1 nan\n2 2 inf\n",
            "2 entries are NaN or infinite, the first (nan) at row 2, column 1",
        ),
        (
            GENERAL + "3 3 3\n1 1 1\n2 1 1\n3 2 1\n",
            "is zero in 2 rows: 2, 3 (counted from 1)",
        ),
        (GENERAL + "3 3 2\n1 1 1\n3 3 1\n", "1 row is empty: 2"),
        (
            GENERAL + "9 9 9\n1 1 1\n" + "".join(f"{i} 1 1\n" for i in range(2, 10)),
            "is zero in 8 rows: 2, 3, 4, 5, 6, ...",
        ),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n", "zero in 2 rows"),
        (
            "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 2\n2 1 1\n2 2 3\n",
            "skew-symmetric, and yet its diagonal is not zero in row 2",
        ),
        (
            f"{HEADER} unsigned-integer general\n1 1 1\n1 1 -4\n",
            'line 3: "1 1 -4" is no entry: give row column value, the value a whole number',
        ),
        (
            f"{HEADER} quaternion general\n1 1 1\n1 1 4\n",
            'the first line: unknown type of entries "quaternion": ',
        ),
        (
            "%%MatrixMarket matrix coordinates real general\n1 1 1\n1 1 4\n",
            'unknown format "coordinates": did you mean "coordinate"?',
        ),
        (
            f"{HEADER} real hermitean\n1 1 1\n1 1 4\n",
            'unknown symmetry "hermitean": did you mean "hermitian"?',
        ),
        (f"{HEADER} complex hermitian\n1 1 1\n1 1 1 0\n", "are complex"),
        ("%%MatrixMarket matrix array complex general\n1 1\n1 0\n", "are complex"),
        (f"{HEADER} pattern symmetric\n1 1 1\n1 1\n", "only the pattern"),
        ("%%MatrixMarket matrix coordinate real\n1 1 1\n1 1 4\n", "is not one of"),
        (GENERAL + "2 2 2\n0 0 1\n1 1 1\n", "row 0 and column 0 of a matrix of 2 x 2: they count"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_matrix(path)
    message = str(error.value)
    assert words in message
    assert message.startswith(str(path))
    assert "\n" not in message


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_matrix(tmp_path / "none.mtx")
    with pytest.raises(InputError, match="directory"):
        load_matrix(tmp_path)


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(("% long\n" * 200 + GENERAL).encode())
    path = tmp_path / "matrix.mtx.gz"
    path.write_bytes(whole[:-12])
    with pytest.raises(InputError, match="the gzipped file is cut off"):
        load_matrix(path)
    path.write_bytes(whole[:12] + b"\xff\xff\xff\xff" + whole[16:])
    with pytest.raises(InputError, match=r"matrix\.mtx\.gz: the gzipped file .* damaged"):
        load_matrix(path)


def test_a_method_that_does_not_divide_by_the_diagonal_may_have_zeros_there(tmp_path):
    path = write(tmp_path, GENERAL + "2 2 2\n1 2 1\n2 1 1\n")
    assert load_matrix(path, divides_by_diagonal=False).n == 2


@pytest.mark.parametrize(
    "form",
    [
        sparse.csr_array,
        sparse.csc_matrix,
        sparse.coo_array,
        sparse.lil_matrix,
        sparse.dok_array,
        sparse.dia_matrix,
        sparse.bsr_array,
        np.asarray,
        np.ndarray.tolist,
    ],
)
def test_any_matrix_at_hand(form):
    values = np.array([[4, 0, 1], [0, 5, 0], [2, 0, 6]])
    A = problem_from(form(values)).A
    assert A.toarray().tolist() == values.tolist()
    assert A.nnz == 5


def test_the_matrix_at_hand_stays_as_it_is():
    mine = sparse.csr_array(np.array([[4.0, 1.0], [0.0, 5.0]]))
    mine.data[1] = 0.0
    A = problem_from(mine).A
    A.data[0] = 7.0
    assert mine.data.tolist() == [4.0, 0.0, 5.0]
    assert A.nnz == 2


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones(3), "has two dimensions, not 1"),
        (np.ones((2, 3)), "square, not 2 x 3"),
        (np.zeros((0, 0)), "has no rows"),
        (np.eye(2) * 1j, "complex"),
        ([["a", "b"], ["c", "d"]], "must be real numbers"),
        ([[1, np.inf], [0, 1]], "1 entry is NaN or infinite, the first (inf) at row 1, column 2"),
        ([[1, 1], [1, 0]], "zero in 1 row: 2"),
    ],
)
def test_matrices_at_hand_that_cannot_be_used(matrix, words):
    with pytest.raises(InputError) as error:
        problem_from(matrix, name="mine")
    assert str(error.value).startswith("mine: ")
    assert words in str(error.value)


ANSWER = [[4.0, -1.0], [0.0, 4.0]]
GOOD = GENERAL + "2 2 3\n1 1 4\n1 2 -1\n2 2 4\n"


@pytest.mark.parametrize(
    "data",
    [
        GOOD.encode(),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        gzip.compress(GOOD.encode(), mtime=0),
        GOOD.replace("real", "double").encode(),
        GOOD.replace("real", "integer").encode(),
        GOOD.upper().replace("%%MATRIXMARKET", "%%MatrixMarket").encode(),
        (GOOD.replace("2 2 3", "2 2 4") + "1 1 0\n").encode(),
        GOOD.replace("2 2 3\n1 1 4", "2 2 4\n1 1 3\n1 1 1").encode(),
        b"%%MatrixMarket matrix array real general\n2 2\n4\n0\n-1\n4\n",
    ],
)
def test_the_same_matrix_in_other_clothes(tmp_path, data):
    path = tmp_path / "matrix.mtx"
    path.write_bytes(data)
    assert load_matrix(path).A.toarray().tolist() == ANSWER


@pytest.mark.parametrize("layout", ["coordinate", "array"])
def test_unsigned_integers_are_read_as_scipy_writes_them(tmp_path, layout):
    """SciPy calls the entries of an unsigned type "unsigned-integer"."""
    path = tmp_path / "matrix.mtx"
    A = np.array([[4, 1], [0, 18446744073709551615]], np.uint64)
    mmwrite(path, coo_array(A) if layout == "coordinate" else A)
    assert b"unsigned-integer" in path.read_bytes()
    read = read_matrix_market(path)
    read = read if layout == "array" else read.toarray()
    assert read.tolist() == [[4.0, 1.0], [0.0, 2.0**64]]


BOEING = (
    "Title of a matrix                                                       KEY     \n"
    "             5             1             1             3             0\n"
    "RUA                        2             2             3             0\n"
    "(16I5)          (16I5)          (5E16.8)\n"
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (bz2.compress(GOOD.encode()), "compressed with bzip2"),
        (lzma.compress(GOOD.encode()), "compressed with xz"),
        (b"PK\x03\x04" + b"0" * 100, "the archive is cut off or damaged"),
        (b"\x93NUMPY\x01", "not a NumPy file of numbers"),
        (b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "SciPy cannot read this MATLAB file"),
        (GOOD.encode("utf-16"), "text in UTF-16"),
        (BOEING.encode(), "a Harwell-Boeing or Rutherford-Boeing file (RUA"),
        (BOEING.replace("\n", "\r\n").replace("RUA", "rsa").encode(), "Boeing file (RSA"),
    ],
)
def test_other_formats_are_refused_by_their_names(tmp_path, data, words):
    path = tmp_path / "matrix.mtx"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        load_matrix(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_tar_archive_is_called_one(tmp_path):
    (tmp_path / "a.mtx").write_text(GOOD)
    path = tmp_path / "matrix.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "a.mtx", "a/a.mtx")
    with pytest.raises(InputError, match=r"a tar archive \(the \.mtx is in it: tar -xf\)"):
        load_matrix(path)
