"""Matrices and vectors in files of NumPy, SciPy and MATLAB: .npy, .npz and .mat."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np

from paracosm.errors import InputError
from paracosm.files import MOST_BYTES, read_bytes

_NPY, _ZIP, _MATLAB = b"\x93NUMPY", b"PK\x03\x04", b"MATLAB 5.0"
_MOST_SHOWN = 10  # names in a message


def read_array_file(path: str | Path, names: tuple[str, ...], *, vector: bool) -> Any:
    """Return the matrix, or the `vector`, in a file: an array or a SciPy sparse array.

    Of several in one file it is the one that has one of `names`, or the only one.

    Returns:
        None where the file is of another format.

    Raises:
        InputError: the file is damaged, or does not say which is meant.
    """
    path = Path(path)
    head = read_bytes(path, 16)
    if head.startswith(_NPY):
        return _npy(path, io.BytesIO(read_bytes(path)))
    if head.startswith(_ZIP):
        return _chosen(path, _zipped(path, read_bytes(path)), names, vector)
    if head.startswith(_MATLAB):
        return _chosen(path, _variables(path, read_bytes(path)), names, vector)
    return None


def _npy(path: str | Path, file: io.BytesIO) -> Any:
    try:
        with catch_warnings(action="ignore"):  # of files that Python 2 wrote
            values: Any = np.lib.format.read_array(file, allow_pickle=False)
    except Exception:  # its header is read as a Python literal: it can fail in many ways
        raise InputError(f"{path}: not a NumPy file of numbers") from None
    if more := file.read():
        raise InputError(f"{path}: {len(more):,} bytes more than its shape {values.shape} takes")
    return values


def _zipped(path: Path, data: bytes) -> dict[str, Any]:
    """Return the arrays in a .npz by name; a sparse matrix of SciPy's under the name "A"."""
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(part.file_size for part in archive.infolist()) > MOST_BYTES:
                raise InputError(f"{path}: larger than {MOST_BYTES >> 30} GiB unpacked")
            for part in archive.namelist():
                if part.endswith(".npy"):
                    name = part.removesuffix(".npy")
                    arrays[name] = _npy(f"{path}: {name}", io.BytesIO(archive.read(part)))
    except InputError:
        raise
    except Exception:  # of a damaged archive, in one of many ways
        raise InputError(f"{path}: the archive is cut off or damaged") from None
    if "format" not in arrays:
        return arrays
    return {"A": _sparse(path, arrays)}


_KEYS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def _sparse(path: Path, arrays: Mapping[str, Any]) -> Any:
    """Return the matrix that `scipy.sparse.save_npz` wrote, its indices checked."""
    from scipy import sparse

    try:
        # SciPy wrote text as bytes, before it wrote it as text.
        name = arrays["format"].item()
        name = name.decode() if isinstance(name, bytes) else str(name)
        parts = [arrays[key] for key in _KEYS[name]]
        data = (parts[0], tuple(parts[1:])) if name == "coo" else tuple(parts)
        shape = tuple(int(size) for size in arrays["shape"])
        matrix = getattr(sparse, f"{name}_array")(data, shape=shape)
        return _with_checked_indices(matrix)
    except Exception:  # of what is missing, of another type, or does not fit
        raise InputError(
            f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it"
        ) from None


def _with_checked_indices(matrix: Any) -> Any:
    """Return a sparse matrix unless an index is outside, which compiled code would follow."""
    if matrix.format in ("csr", "csc", "bsr"):
        matrix.check_format(full_check=True)
    return matrix


def _variables(path: Path, data: bytes) -> dict[str, Any]:
    """Return the variables of a MATLAB file by name, those of a structure as "Problem.A"."""
    from scipy.io import loadmat

    try:
        content = loadmat(io.BytesIO(data), spmatrix=False, verify_compressed_data_integrity=True)
        variables = {name: value for name, value in content.items() if not name.startswith("__")}
        return dict(_flat(variables))
    except InputError:
        raise
    except Exception:  # of a damaged file, in one of many ways
        raise InputError(f"{path}: SciPy cannot read this MATLAB file: it is damaged") from None


def _flat(variables: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield numeric variables with their names; a structure's are named with a dot."""
    for name, value in variables.items():
        kind = getattr(value, "dtype", np.dtype(object))
        if kind.names is not None and value.size == 1 and not within:
            yield from _flat({key: value.flat[0][key] for key in kind.names}, f"{name}.")
        elif hasattr(value, "format"):
            yield within + name, _with_checked_indices(value)
        elif kind.kind in "fiubc":
            yield within + name, value


def _chosen(path: Path, arrays: Mapping[str, Any], names: tuple[str, ...], vector: bool) -> Any:
    """Return the array that is meant: by its name, or since no other has its form."""
    what = "vector" if vector else "square matrix"
    fitting = {name: value for name, value in arrays.items() if _is_fitting(value, vector)}
    named = [value for name, value in fitting.items() if name.rpartition(".")[2] in names]
    if len(named) == 1:
        return named[0]
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    shown = ", ".join(
        f"{name} ({'x'.join(map(str, np.shape(value)))})"
        for name, value in list((fitting or arrays).items())[:_MOST_SHOWN]
    )
    if fitting:
        raise InputError(f"{path}: several could be the {what}: {shown}: call it {names[0]}")
    raise InputError(f"{path}: no {what} in it{', but ' + shown if shown else ''}")


def _is_fitting(value: Any, vector: bool) -> bool:
    shape = value.shape
    if vector:
        return len(shape) > 0 and math.prod(shape) == max(shape) > 0
    return len(shape) == 2 and shape[0] == shape[1]
