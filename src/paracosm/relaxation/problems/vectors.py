"""Right-hand sides and first iterates: made from a seed, from a known solution, or from a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paracosm.errors import InputError, unknown
from paracosm.rng import RelaxationStream, generator

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["RIGHT_HAND_SIDES", "STARTS", "checked_vector", "first_iterate", "right_hand_side"]

Array = NDArray[np.float64]

RIGHT_HAND_SIDES = ("uniform", "ones-solution", "ones")
STARTS = ("zeros", "random")
_FILES = (".npy", ".mtx", ".mtx.gz")


def right_hand_side(A: csr_array, rhs: str, seed: int) -> tuple[Array, Array | None]:
    """Return b, shape (n,), and the solution where it is known.

    rhs: "uniform", each component uniform on (-0.5, 0.5), then normalised to 2-norm 1 (paper,
    section 4.1); "ones-solution", b = A 1, whose solution is 1 everywhere (section 5.1); "ones",
    1 everywhere; or a file, .npy or Matrix Market.

    Raises:
        InputError: an unknown name, or a file that cannot be used.
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


def first_iterate(n: int, start: str, seed: int) -> Array:
    """Return x0, shape (n,): "zeros", "random" (uniform on (-0.5, 0.5)), or from a file.

    Raises:
        InputError: an unknown name, or a file that cannot be used.
    """
    if start == "zeros":
        return np.zeros(n)
    if start == "random":
        return _uniform(n, seed, RelaxationStream.START)
    if start.endswith(_FILES):
        return _from_file(start, "first iterate", n)
    raise unknown("start", start, [*STARTS, "a .npy or .mtx file"])


def checked_vector(values: ArrayLike, what: str, n: int) -> Array:
    """Return `values` as float64 of shape (n,); a single row or column is flattened.

    Raises:
        InputError: complex or other entries, the wrong length, NaN or infinity.
    """
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


def _uniform(n: int, seed: int, stream: RelaxationStream) -> Array:
    return generator(seed, stream).uniform(-0.5, 0.5, n)


def _from_file(path: str, what: str, n: int) -> Array:
    from paracosm.relaxation.problems.matrix_market import read_matrix_market

    what = f"{what} {Path(path).name}"
    if not path.endswith(".npy"):
        found = read_matrix_market(path)
        return checked_vector(found if isinstance(found, np.ndarray) else found.toarray(), what, n)
    try:
        return checked_vector(np.load(path, allow_pickle=False), what, n)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a NumPy file of numbers") from None
