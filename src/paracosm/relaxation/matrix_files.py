"""Vectors and matrices of a problem: from files, Python, a seed, or a known solution."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paracosm.arrays import Floats, refuse_masked
from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.relaxation.array_files import read_array_file
from paracosm.rng import RelaxationStream, generator
from paracosm.units import parse_whole

if TYPE_CHECKING:
    from scipy.sparse import coo_array, csr_array

RIGHT_HAND_SIDES = ("uniform", "ones-solution", "ones")
STARTS = ("zeros", "random")

_FILES = (".npy", ".npz", ".mat", ".mtx", ".mtx.gz")


def right_hand_side(A: csr_array, rhs: Any, seed: int) -> tuple[Floats, Floats | None]:
    """Return b, shape (n,), and the solution where it is known.

    rhs: a vector; or "uniform", each component uniform on (-0.5, 0.5), then normalised to 2-norm 1
    (paper, section 4.1); "ones-solution", b = A 1, whose solution is 1 everywhere (section 5.1);
    "ones", 1 everywhere; or a file: Matrix Market, .npy, .npz or .mat.
    """
    n = A.shape[0]
    if not isinstance(rhs, str):
        return checked_vector(rhs, "right-hand side", n), None
    if rhs == "uniform":
        b = _uniform(n, seed, RelaxationStream.RIGHT_HAND_SIDE)
        # Summed exactly: a BLAS norm differs in the last bit from machine to machine.
        return b / math.sqrt(math.fsum((b * b).tolist())), None
    if rhs == "ones-solution":
        return A @ np.ones(n), np.ones(n)
    if rhs == "ones":
        return np.ones(n), None
    if rhs.endswith(_FILES):
        return _from_file(rhs, "right-hand side", n, ("b", "rhs")), None
    raise unknown("right-hand side", rhs, [*RIGHT_HAND_SIDES, "a .mtx, .npy, .npz or .mat file"])


def first_iterate(n: int, start: Any, seed: int) -> Floats:
    """Return x0, shape (n,): a vector, "zeros", "random" (uniform on (-0.5, 0.5)), or a file."""
    if not isinstance(start, str):
        return checked_vector(start, "first iterate", n)
    if start == "zeros":
        return np.zeros(n)
    if start == "random":
        return _uniform(n, seed, RelaxationStream.START)
    if start.endswith(_FILES):
        return _from_file(start, "first iterate", n, ("x0", "x"))
    raise unknown("start", start, [*STARTS, "a .mtx, .npy, .npz or .mat file"])


def checked_vector(values: ArrayLike, what: str, n: int) -> Floats:
    """Return `values` as float64 of shape (n,); a single row or column is flattened."""
    refuse_masked(values, what)
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


def _from_file(path: str, what: str, n: int, names: tuple[str, ...]) -> Floats:
    what = f"{what} {Path(path).name}"
    numbers = read_array_file(path, names, vector=True)
    if numbers is None:
        numbers = read_matrix_market(path)
    return checked_vector(
        numbers if isinstance(numbers, np.ndarray) else numbers.toarray(), what, n
    )


def read_matrix(path: str | Path) -> Any:
    """Return the real matrix in a file: a SciPy sparse array, or a dense array.

    What the file is, its content says: Matrix Market (gzipped or not), SciPy's or NumPy's .npz,
    .npy, or MATLAB's .mat before 7.3.

    Raises:
        InputError: it is none of them, is damaged, or has several matrices.
    """
    matrix = read_array_file(path, ("A",), vector=False)
    return read_matrix_market(path) if matrix is None else matrix


_FIELDS = ("real", "double", "integer", "unsigned-integer", "complex", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


def read_matrix_market(path: str | Path) -> Any:
    """Return the real matrix in the file: a SciPy `coo_array`, or an array for format "array".

    Symmetric storage is expanded, and entries of one place add up. The file may be compressed with
    gzip, whatever it is called.
    """
    path = Path(path)
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if b"\n" not in data:  # lines end as on old Macs, or there is only one
        data = data.replace(b"\r", b"\n")
    header = _header(path, data)
    if header.field == "complex":
        raise InputError(f"{path}: its entries are complex; only real matrices are solved")
    if header.field == "pattern":
        raise InputError(
            f"{path}: it holds only the pattern of the non-zeros; a matrix with values is needed"
        )
    rows, columns = header.sizes[:2]
    if rows != columns and header.symmetry != "general":
        raise InputError(f"{path}: {header.symmetry}, and yet not square: {rows} x {columns}")
    numbers = _numbers(path, data, header)
    return _dense(numbers, header) if header.layout == "array" else _sparse(path, numbers, header)


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
    if words[:1] != ["%%matrixmarket"]:
        other = _other_format(data)
        raise InputError(
            f"{path}: not a Matrix Market file{other and ', but ' + other}: it must begin with "
            '"%%MatrixMarket matrix coordinate real general" or the like (scipy.io.mmwrite writes '
            "it); SciPy's .npz, NumPy's .npy and MATLAB's .mat are read, too"
        )
    if len(words) != 5 or words[1] != "matrix":
        raise InputError(
            f'{path}: the first line "{" ".join(words)[:100]}" is not one of '
            "%%MatrixMarket matrix coordinate|array real|integer general|symmetric|skew-symmetric"
        )
    for kind, word, known in zip(
        ("format", "type of entries", "symmetry"),
        words[2:],
        (("coordinate", "array"), _FIELDS, _SYMMETRIES),
        strict=True,
    ):
        if word not in known:
            raise InputError(f"{path}: the first line: {unknown(kind, word, known)}")
    _, _, layout, field, symmetry = words
    while end < len(data):
        start, end = end, data.find(b"\n", end) + 1 or len(data)
        line = data[start:end].strip()
        if line and not line.startswith(b"%"):
            words = line.decode("ascii", "replace").split()
            sizes = [size for word in words if (size := parse_whole(word)) is not None]
            if len(sizes) != len(words) or len(sizes) != (3 if layout[0] == "c" else 2):
                form = "rows columns entries" if layout[0] == "c" else "rows columns"
                text = line[:40].decode("utf-8", "replace")
                raise InputError(f'{path}: the line of sizes must be "{form}", not "{text}"')
            return _Header(layout, field, symmetry, sizes, end)
    raise InputError(f"{path}: the file is cut off before the line of sizes")


_SIGNATURES = {
    b"BZh": "compressed with bzip2 (unpack it, or use gzip)",
    b"\xfd7zXZ": "compressed with xz (unpack it, or use gzip)",
    b"\x28\xb5\x2f\xfd": "compressed with zstd (unpack it, or use gzip)",
    b"\x89HDF": "an HDF5 file, as of MATLAB 7.3 (save it with -v7)",
    b"\xff\xfe": "text in UTF-16 (save it as UTF-8)",
    b"\xfe\xff": "text in UTF-16 (save it as UTF-8)",
}
_BOEING = re.compile(
    rb"[^\n]*\n[ \d]+\r?\n[ \t]*(?P<type>[rcpiqRCPIQ][suhzrSUHZR][aeAE])\b[ \t]+\d+[ \t]+\d+"
)


def _other_format(data: bytes) -> str:
    """Return what a file is that is no Matrix Market file; empty if that is not known."""
    for signature, words in _SIGNATURES.items():
        if data.startswith(signature):
            return words
    if data[257:262] == b"ustar":
        return "a tar archive (the .mtx is in it: tar -xf)"
    if (boeing := _BOEING.match(data)) is not None:
        kind = boeing["type"].decode().upper()
        return (
            f"a Harwell-Boeing or Rutherford-Boeing file ({kind}; scipy.io.hb_read reads it, "
            "scipy.io.mmwrite writes)"
        )
    return ""


_TRIANGLES = 2  # each entry of a symmetric matrix may stand for two

_WHOLE = rb"[-+]?\d++"
_REAL = rb"[-+]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+|(?i:nan|inf(?:inity)?+))"


def _numbers(path: Path, data: bytes, header: _Header) -> Floats:
    """Return the numbers behind the line of sizes: all that it announces, and nothing else."""
    # SciPy's reader ignores what follows a number, as in 1d3, or reads on behind the file's end.
    rows, columns = header.sizes[:2]
    if header.layout == "coordinate":
        expected, form = header.sizes[2], "row column value"
        if rows == columns and rows > _TRIANGLES * expected:
            raise InputError(f"{path}: {expected:,} entries for {rows:,} rows: some rows are empty")
    else:
        triangle = rows * (rows + 1) // 2 - rows * (header.symmetry == "skew-symmetric")
        expected, form = rows * columns if header.symmetry == "general" else triangle, "value"
    whole_numbers = {"integer": _WHOLE, "unsigned-integer": rb"\+?\d++"}
    value = whole_numbers.get(header.field, _REAL)
    words = rb"[ \t]++".join([rb"\d++"] * (len(form.split()) - 1) + [value])
    line = rb"(?:[ \t]*+" + words + rb")?+[ \t\r]*+"
    whole = re.compile(rb"(?:%b\n)*+(?:%b)" % (line, line)).match(data, header.end)
    end = header.end if whole is None else whole.end()
    start = data.rfind(b"\n", 0, end) + 1
    is_cut = data.find(b"\n", end) < 0 and 0 < len(data[start:].split()) < len(form.split())
    if end < len(data) and not is_cut:
        wrong = data[start : data.find(b"\n", end) % (len(data) + 1)][:40].decode(
            "utf-8", "replace"
        )
        kind = "whole " if header.field in whole_numbers else ""
        raise InputError(
            f'{path}: line {data.count(10, 0, start) + 1}: "{wrong.strip()}" is no entry: give '
            f"{form}, the value a {kind}number as in {'12' if kind else '-1.5e-3'}"
        )
    numbers = np.fromstring(data[header.end : start if is_cut else None].decode("ascii"), sep=" ")
    count = len(numbers) // len(form.split())
    if count < expected:
        raise InputError(
            f"{path}: the file is cut off: {count:,} of {expected:,} entries are there"
        )
    if count > expected:
        raise InputError(f"{path}: more entries ({count:,}) than in its header ({expected:,})")
    return numbers


def _dense(numbers: Floats, header: _Header) -> Floats:
    rows, columns = header.sizes
    if header.symmetry == "general":
        return numbers.reshape(columns, rows).T
    skew = header.symmetry == "skew-symmetric"
    upper = np.zeros((rows, rows))
    upper[np.triu_indices(rows, int(skew))] = numbers  # the lower triangle column by column
    return upper.T - upper if skew else np.triu(upper, 1) + upper.T


def _sparse(path: Path, numbers: Floats, header: _Header) -> coo_array:
    from scipy.sparse import coo_array

    shape = tuple(header.sizes[:2])
    places, values = numbers.reshape(-1, 3)[:, :2], numbers[2::3]
    outside = np.flatnonzero(((places < 1) | (places > shape)).any(axis=1))
    if outside.size:
        row, column = places[outside[0]]
        raise InputError(
            f"{path}: entry {outside[0] + 1:,} is in row {row:.0f} and column {column:.0f} of a "
            f"matrix of {shape[0]} x {shape[1]}: they count from 1"
        )
    i, j = places.T.astype(np.int64) - 1
    if header.symmetry != "general":
        low, high = (shape[0] * a[a > b] + b[a > b] for a, b in ((i, j), (j, i)))
        if len(twice := np.intersect1d(low, high)):
            row, column = divmod(int(twice[0]), shape[0])
            raise InputError(
                f"{path}: {header.symmetry}, and yet it has both entries ({row + 1}, {column + 1}) "
                f"and ({column + 1}, {row + 1}): give the first alone"
            )
        off = i != j
        if header.symmetry == "skew-symmetric" and values[~off].any():
            place = int(i[~off][values[~off] != 0][0]) + 1
            raise InputError(
                f"{path}: skew-symmetric, and yet its diagonal is not zero in row {place}"
            )
        sign = -1 if header.symmetry == "skew-symmetric" else 1
        values = np.concatenate([values, sign * values[off]])
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return coo_array((values, (i, j)), shape)
