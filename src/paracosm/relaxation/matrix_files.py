"""Right-hand sides and first iterates: made from a seed, from a known solution, or from a file."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paracosm.arrays import Floats
from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.rng import RelaxationStream, generator

if TYPE_CHECKING:
    from scipy.sparse import csr_array

RIGHT_HAND_SIDES = ("uniform", "ones-solution", "ones")
STARTS = ("zeros", "random")

_FILES = (".npy", ".mtx", ".mtx.gz")


def right_hand_side(A: csr_array, rhs: str, seed: int) -> tuple[Floats, Floats | None]:
    """Return b, shape (n,), and the solution where it is known.

    rhs: "uniform", each component uniform on (-0.5, 0.5), then normalised to 2-norm 1 (paper,
    section 4.1); "ones-solution", b = A 1, whose solution is 1 everywhere (section 5.1); "ones",
    1 everywhere; or a file, .npy or Matrix Market.
    """
    n = A.shape[0]
    if rhs == "uniform":
        b = _uniform(n, seed, RelaxationStream.RIGHT_HAND_SIDE)
        # Summed exactly: a BLAS norm differs in the last bit from machine to machine.
        return b / math.sqrt(math.fsum((b * b).tolist())), None
    if rhs == "ones-solution":
        return A @ np.ones(n), np.ones(n)
    if rhs == "ones":
        return np.ones(n), None
    if rhs.endswith(_FILES):
        return _from_file(rhs, "right-hand side", n), None
    raise unknown("right-hand side", rhs, [*RIGHT_HAND_SIDES, "a .npy or .mtx file"])


def first_iterate(n: int, start: str, seed: int) -> Floats:
    """Return x0, shape (n,): "zeros", "random" (uniform on (-0.5, 0.5)), or from a file."""
    if start == "zeros":
        return np.zeros(n)
    if start == "random":
        return _uniform(n, seed, RelaxationStream.START)
    if start.endswith(_FILES):
        return _from_file(start, "first iterate", n)
    raise unknown("start", start, [*STARTS, "a .npy or .mtx file"])


def checked_vector(values: ArrayLike, what: str, n: int) -> Floats:
    """Return `values` as float64 of shape (n,); a single row or column is flattened."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what}: its entries must be real numbers, not {array.dtype}")
    if array.ndim != 1 and max(array.shape, default=1) != array.size:
        raise InputError(f"{what}: it must be a vector, not of shape {array.shape}")
    vector = array.astype(np.float64).ravel()
    if vector.size != n:
        raise InputError(f"{what}: it has {vector.size} entries, but the matrix has {n} rows")
    wrong = np.flatnonzero(~np.isfinite(vector))
    if wrong.size:
        raise InputError(
            f"{what}: {wrong.size} entries are NaN or infinite, the first is entry {wrong[0] + 1} "
            f"({vector[wrong[0]]})"
        )
    return vector


def _uniform(n: int, seed: int, stream: RelaxationStream) -> Floats:
    return generator(seed, stream).uniform(-0.5, 0.5, n)


def _from_file(path: str, what: str, n: int) -> Floats:
    what = f"{what} {Path(path).name}"
    if not path.endswith(".npy"):
        found = read_matrix_market(path)
        return checked_vector(found if isinstance(found, np.ndarray) else found.toarray(), what, n)
    try:
        found = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    except InputError:
        raise
    except Exception:  # its header is read as a Python literal: it can fail in many ways
        raise InputError(f"{path}: not a NumPy file of numbers") from None
    return checked_vector(found, what, n)


_FIELDS = ("real", "double", "integer", "complex", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


def read_matrix_market(path: str | Path) -> Any:
    """Return the real matrix in the file: a SciPy `coo_array`, or an array for format "array".

    Symmetric storage is expanded. The file may be compressed with gzip, whatever it is called.
    """
    from scipy.io import mmread

    path = Path(path)
    data = read_bytes(path)
    header = _header(path, data)
    if header.field == "complex":
        raise InputError(f"{path}: its entries are complex; only real matrices are solved")
    if header.field == "pattern":
        raise InputError(
            f"{path}: it holds only the pattern of the non-zeros; a matrix with values is needed"
        )
    _check_whole(path, data, header)
    try:
        return mmread(io.BytesIO(data), spmatrix=False)
    except TypeError:  # SciPy before 1.15 has no such argument, and no coo_array here
        return mmread(io.BytesIO(data))
    except (ValueError, OverflowError, StopIteration) as error:
        raise InputError(f"{path}: {_one_line(error)}") from None


class _Header(NamedTuple):
    layout: str  # "coordinate" or "array"
    field: str
    symmetry: str
    sizes: list[int]
    end: int  # where the entries begin, in bytes


def _header(path: Path, data: bytes) -> _Header:
    """Read the banner and the line of sizes, which comments and blank lines may precede."""
    end = data.find(b"\n") + 1 or len(data)
    words = data[: min(end, 1000)].decode("utf-8", "replace").lower().split()
    if words[:1] != ["%%matrixmarket"] or len(words) != 5:
        raise InputError(
            f"{path}: not a Matrix Market file: it must begin with "
            '"%%MatrixMarket matrix coordinate real general" or the like'
        )
    _, what, layout, field, symmetry = words
    known = what == "matrix" and layout in ("coordinate", "array")
    if not known or field not in _FIELDS or symmetry not in _SYMMETRIES:
        raise InputError(
            f'{path}: the first line "{" ".join(words)}" is not one of '
            "%%MatrixMarket matrix coordinate|array real|integer general|symmetric|skew-symmetric"
        )
    while end < len(data):
        start, end = end, data.find(b"\n", end) + 1 or len(data)
        line = data[start:end].strip()
        if line and not line.startswith(b"%"):
            sizes = [int(word) for word in line.split() if word.isdigit()]
            if len(sizes) != len(line.split()) or len(sizes) != (3 if layout[0] == "c" else 2):
                form = "rows columns entries" if layout[0] == "c" else "rows columns"
                text = line[:40].decode("utf-8", "replace")
                raise InputError(f'{path}: the line of sizes must be "{form}", not "{text}"')
            return _Header(layout, field, symmetry, sizes, end)
    raise InputError(f"{path}: the file is cut off before the line of sizes")


_TRIANGLES = 2  # each entry of a symmetric matrix may stand for two


def _check_whole(path: Path, data: bytes, header: _Header) -> None:
    if header.layout == "coordinate":
        expected, values = header.sizes[2], 3
        rows, columns, _ = header.sizes
        if rows == columns and rows > _TRIANGLES * expected:
            raise InputError(f"{path}: {expected:,} entries for {rows:,} rows: some rows are empty")
    else:
        rows, columns = header.sizes
        triangle = rows * (rows + 1) // 2 - rows * (header.symmetry == "skew-symmetric")
        expected, values = rows * columns if header.symmetry == "general" else triangle, 1
    nul = data.find(b"\0")
    if nul >= 0:  # SciPy would read behind the end of a line
        raise InputError(f"{path}: byte {nul:,} is NUL: not a text file, or damaged")
    words = len(data[header.end :].split())
    found = words // values
    if found < expected:
        raise InputError(
            f"{path}: the file is cut off: {found:,} of {expected:,} entries are there"
        )
    if words > expected * values:
        raise InputError(f"{path}: more entries ({found:,}) than in its header ({expected:,})")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
