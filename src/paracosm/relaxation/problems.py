"""A linear system to be solved by relaxation: matrix, right-hand side, first iterate."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from paracosm.arrays import Floats, Ints, refuse_masked
from paracosm.errors import InputError, unknown
from paracosm.relaxation.matrix_files import (
    checked_vector,
    first_iterate,
    read_matrix,
    right_hand_side,
)
from paracosm.units import parse_number, parse_whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Stencil:
    """The same linear combination of neighbours at every point of a box, and 0 outside it.

    Points are numbered row-major: the last axis (x) varies fastest. Boundary values are part of the
    right-hand side.

    Args:
        shape: points along each axis, (ny, nx) or (nz, ny, nx).
        offsets: of each neighbour, the point itself included; shape (k, len(shape)), in ascending
            order, so that the columns of every row of the matrix ascend.
        coefficients: of each neighbour, shape (k,).
    """

    shape: tuple[int, ...]
    offsets: Ints
    coefficients: Floats

    @property
    def points(self) -> int:
        """The number of grid points, that is of unknowns."""
        return math.prod(self.shape)

    def apply(self, x: Floats) -> Floats:
        """Return A @ x without the matrix; `x` and the result have shape (points,)."""
        grid = x.reshape(self.shape)
        result = np.zeros(self.shape)
        for offset, coefficient in zip(self.offsets.tolist(), self.coefficients, strict=True):
            # Point p reads p + offset: the points that have such a neighbour, and the neighbours.
            reads = tuple(
                slice(max(0, step), size + min(0, step))
                for step, size in zip(offset, self.shape, strict=True)
            )
            points = tuple(
                slice(max(0, -step), size + min(0, -step))
                for step, size in zip(offset, self.shape, strict=True)
            )
            result[points] += coefficient * grid[reads]
        return result.ravel()

    def matrix(self) -> csr_array:
        """Return A, shape (points, points): sorted indices, int32 where they fit."""
        from scipy.sparse import csr_array

        n, k = self.points, len(self.coefficients)
        index = np.int32 if n * k < 2**31 else np.int64
        inside = np.empty((*self.shape, k), dtype=bool)
        steps = np.empty(k, dtype=np.int64)
        for number, offset in enumerate(self.offsets.tolist()):
            ok = np.ones((1,) * len(self.shape), dtype=bool)
            step = 0
            for axis, size in enumerate(self.shape):
                position = np.arange(size) + offset[axis]
                along = [1] * len(self.shape)
                along[axis] = size
                ok = ok & ((position >= 0) & (position < size)).reshape(along)
                step = step * size + offset[axis]
            inside[..., number] = ok
            steps[number] = step
        mask = inside.reshape(n, k)
        columns = (np.arange(n, dtype=index)[:, None] + steps.astype(index))[mask]
        values = np.broadcast_to(self.coefficients, (n, k))[mask]
        pointer = np.zeros(n + 1, dtype=index)
        np.cumsum(mask.sum(axis=1), out=pointer[1:])
        matrix = csr_array((values, columns, pointer), shape=(n, n))
        matrix.has_sorted_indices = True
        matrix.has_canonical_format = True
        return matrix


def laplacian(shape: tuple[int, ...]) -> Stencil:
    """Return minus the Laplacian, times h²: the 5-point (2-D) or 7-point (3-D) stencil.

    4 or 6 at the point itself and -1 at its neighbours along each axis (paper, sections 4.1, 5.1).
    """
    axes = len(shape)
    neighbours = {
        tuple(sign * (axis == other) for other in range(axes)): -1.0
        for axis in range(axes)
        for sign in (-1, 1)
    }
    return _stencil(shape, {(0,) * axes: 2.0 * axes} | neighbours)


def laplacian_9_point(shape: tuple[int, ...]) -> Stencil:
    """Return the 9-point stencil of minus the Laplacian, times 3h²: bilinear finite elements.

    8 at the point itself and -1 at each of the eight points around it; 30 x 30 is the matrix
    gr_30_30 of the Harwell-Boeing collection.
    """
    around = dict.fromkeys(product((-1, 0, 1), repeat=2), -1.0)
    return _stencil(shape, around | {(0, 0): 8.0})


def convection_diffusion(
    shape: tuple[int, ...], peclet: float, angle: float, scheme: Literal["central", "upwind"]
) -> Stencil:
    """Return the stencil of -eps Laplace(u) + w . grad(u), times h²/eps, w constant.

    Elman, Silvester, Wathen, "Finite Elements and Fast Iterative Solvers", chapter 6 (mesh Peclet
    number) and any text on finite differences for the two schemes:

        central: 4 at the point, -(1 + P) upstream and -(1 - P) downstream along each axis
        upwind:  4 + 2 Px + 2 Py at the point, -(1 + 2P) upstream and -1 downstream

    Args:
        shape: (ny, nx).
        peclet: the mesh Peclet number |w| h / (2 eps), 0 or more. Above 1 the central scheme is no
            longer an M-matrix.
        angle: of w, in degrees from the direction of growing x to that of growing y, 0 to 90.
        scheme: how the first derivatives are discretised.
    """
    radians = math.radians(angle)
    # Rows of the grid are y, columns x; cos(90 degrees) is not quite 0 in floating point.
    flow = [round(peclet * part(radians), 15) for part in (math.sin, math.cos)]
    points: dict[tuple[int, ...], float] = {(0, 0): 4.0}
    for axis, along in enumerate(flow):
        upstream, downstream = (
            tuple(sign * (axis == other) for other in range(2)) for sign in (-1, 1)
        )
        if scheme == "central":
            points |= {upstream: -(1 + along), downstream: -(1 - along)}
        else:
            points |= {upstream: -(1 + 2 * along), downstream: -1.0}
            points[0, 0] += 2 * along
    return _stencil(shape, points)


def heat_boundary(
    shape: tuple[int, ...], top: float, left: float, right: float, bottom: float
) -> Floats:
    """Return what fixed temperatures around a plate add to the right-hand side; shape (ny * nx,).

    Each point next to an edge has that edge's temperature as a neighbour. The corners are nobody's
    neighbour, so that the zeros that table 2 has there do not enter.
    """
    b = np.zeros(shape)
    b[0, :] += top
    b[-1, :] += bottom
    b[:, 0] += left
    b[:, -1] += right
    return b.ravel()


def _stencil(shape: tuple[int, ...], points: dict[tuple[int, ...], float]) -> Stencil:
    ordered = sorted((offset, value) for offset, value in points.items() if value != 0.0)
    offsets = np.array([offset for offset, _ in ordered], dtype=np.int64)
    return Stencil(shape, offsets, np.array([value for _, value in ordered]))


_MOST_UNKNOWNS = 10**8


@dataclass(frozen=True)
class _Family:
    axes: int
    stencil: Callable[..., Stencil]
    options: dict[str, float | str]
    default_rhs: str = "uniform"


_TEMPERATURES: dict[str, float | str] = {"top": 100.0, "left": 75.0, "right": 50.0, "bottom": 0.0}
_FLOW: dict[str, float | str] = {"peclet": 0.5, "angle": 0.0, "scheme": "central"}

PROBLEMS: dict[str, _Family] = {
    "laplace2d": _Family(2, laplacian, {}),
    "laplace2d9": _Family(2, laplacian_9_point, {}),
    "laplace3d": _Family(3, laplacian, {}),
    "convection-diffusion": _Family(2, convection_diffusion, _FLOW),
    "heat2d": _Family(2, lambda shape, **_: laplacian(shape), _TEMPERATURES, "boundary"),
}


def load_problem(spec: str, rhs: Any = "default", start: Any = "zeros", seed: int = 0) -> Problem:
    """Return the grid problem that `spec` names: "laplace2d:100", "laplace3d:20x30x40".

    `spec` is `name:size` or `name:size,option=value,...`; one size holds for every axis, `AxB` is
    A rows of B points, `AxBxC` A planes of those. Families:

        laplace2d             5-point Laplacian, 4 and -1
        laplace2d9            9-point Laplacian, 8 and -1
        laplace3d             7-point Laplacian, 6 and -1
        convection-diffusion  options peclet=0.5, angle=0, scheme=central or upwind
        heat2d                a plate between fixed temperatures: top=100, left=75, right=50,
                              bottom=0 (paper, table 2)

    Args:
        spec: what to solve.
        rhs: "default" ("uniform"; for heat2d "boundary", the temperatures around it), "uniform",
            "ones-solution", "ones", a file or a vector; see `right_hand_side`.
        start: "zeros", "random", a file or a vector.
        seed: of "uniform" and "random".

    Raises:
        InputError: an unknown name or option, or a size or value that cannot be.
    """
    name, family, shape, options = _parse(spec)
    stencil = family.stencil(shape, **options)
    A = stencil.matrix()
    word = _origin(rhs)
    if word == "default":
        rhs = word = family.default_rhs
    if word == "boundary":
        if name != "heat2d":
            raise InputError(f'{spec}: the right-hand side "boundary" belongs to heat2d')
        b, solution = heat_boundary(shape, **options), None
    elif name == "heat2d" and any(options[key] != _TEMPERATURES[key] for key in options):
        raise InputError(f'{spec}: temperatures have no effect on the right-hand side "{word}"')
    else:
        b, solution = right_hand_side(A, rhs, seed)
    x0 = first_iterate(stencil.points, start, seed)
    return Problem(spec.strip(), A, b, x0, solution, stencil, word, _origin(start))


def unknowns_of(spec: str) -> int:
    """Return how many unknowns the grid problem that `spec` names has; InputError as for it."""
    _, _, shape, _ = _parse(spec)
    return math.prod(shape)


def load_matrix(
    matrix: Any,
    rhs: Any = "default",
    start: Any = "zeros",
    seed: int = 0,
    *,
    divides_by_diagonal: bool = True,
) -> Problem:
    """Return the problem of a matrix: in a file that `read_matrix` reads, or at hand.

    Arguments are those of `load_problem`, and `rhs` and `start` may be vectors; "default" is
    "uniform". Unless the method `divides_by_diagonal`, zeros there are allowed.
    """
    is_file = isinstance(matrix, str | Path)
    where = str(matrix) if is_file else "matrix"
    name = Path(matrix).name.removesuffix(".gz") if is_file else "matrix"
    A = as_csr(read_matrix(matrix) if is_file else matrix, where)
    if divides_by_diagonal:
        check_diagonal(A, where)
    rhs = "uniform" if isinstance(rhs, str) and rhs == "default" else rhs
    b, solution = right_hand_side(A, rhs, seed)
    x0 = first_iterate(A.shape[0], start, seed)
    return Problem(name, A, b, x0, solution, None, _origin(rhs), _origin(start))


def _origin(vector: Any) -> str:
    return vector if isinstance(vector, str) else "given"


def problem_from(
    A: Any,
    b: ArrayLike | None = None,
    x0: ArrayLike | None = None,
    *,
    solution: ArrayLike | None = None,
    name: str = "matrix",
    divides_by_diagonal: bool = True,
) -> Problem:
    """Return the problem of a matrix at hand: any SciPy sparse matrix or array, or a dense one.

    Without `b` the solution is 1 everywhere; without `x0` the iteration starts at 0.

    Raises:
        InputError: one line that says what cannot be used.
    """
    matrix = as_csr(A, name)
    if divides_by_diagonal:
        check_diagonal(matrix, name)
    n = matrix.shape[0]
    if b is None:
        right, known = right_hand_side(matrix, "ones-solution", 0)
    else:
        right, known = checked_vector(b, "right-hand side", n), None
    if solution is not None:
        known = checked_vector(solution, "solution", n)
    first = np.zeros(n) if x0 is None else checked_vector(x0, "first iterate", n)
    made = "ones-solution" if b is None else "given", "zeros" if x0 is None else "given"
    return Problem(name, matrix, right, first, known, None, *made)


def _parse(spec: str) -> tuple[str, _Family, tuple[int, ...], dict[str, Any]]:
    """Split "name:size,option=value" into the family, the shape and all options."""
    head, *settings = (part.strip() for part in spec.split(","))
    name, colon, size = (part.strip() for part in head.partition(":"))
    family = PROBLEMS.get(name)
    if family is None:
        raise unknown("problem", name, PROBLEMS)
    if not colon:
        raise InputError(f"problem {name}: a size is missing; write {name}:100")
    sizes = [parse_whole(part) or 0 for part in size.split("x")]
    if not all(sizes):
        raise InputError(f'problem {spec}: "{size}" is not a size; write {name}:100')
    if len(sizes) not in (1, family.axes):
        raise InputError(f"problem {spec}: {name} has {family.axes} axes, not {len(sizes)}")
    shape = tuple(sizes if len(sizes) > 1 else sizes * family.axes)
    if math.prod(shape) > _MOST_UNKNOWNS:
        raise InputError(f"problem {spec}: {math.prod(shape):,} unknowns are too many")
    options: dict[str, Any] = dict(family.options)
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if key not in options:
            raise (
                unknown(f"option of {name}", key, options)
                if options
                else InputError(f'problem {spec}: {name} has no options, not "{setting}"')
            )
        if not equals:
            raise InputError(f"problem {spec}: write {key}=value")
        options[key] = _option(spec, key, value)
    return name, family, shape, options


def _option(spec: str, key: str, value: str) -> float | str:
    if key == "scheme":
        if value not in ("central", "upwind"):
            raise unknown("scheme", value, ("central", "upwind"))
        return value
    try:
        number = parse_number(value, signed=key in _TEMPERATURES)
    except InputError as error:
        raise InputError(f"problem {spec}: {key}: {error}") from None
    if not math.isfinite(number) or (key == "angle" and number > 90):
        allowed = "0 to 90 degrees" if key == "angle" else "finite"
        raise InputError(f"problem {spec}: {key} must be {allowed}, not {value}")
    return number


@dataclass(frozen=True, eq=False)
class Problem:
    """A x = b, with `n` unknowns, and where the iteration starts.

    Args:
        name: "laplace2d:100", "494_bus.mtx".
        A: shape (n, n), float64, indices sorted, no duplicates and no stored zeros, int32 indices
            where they fit.
        b: the right-hand side, shape (n,).
        x0: the first iterate, shape (n,).
        solution: x, where it is known, shape (n,).
        stencil: the same matrix as a stencil, for grid problems.
        rhs, start: how `b` and `x0` were made, for the record.
        map: `(x, rows, out)`, which writes G's components `rows` at x to `out`: a fixed point
            x = G(x) is looked for in place of a solution; `A` is empty.
    """

    name: str
    A: csr_array
    b: Floats
    x0: Floats
    solution: Floats | None = None
    stencil: Stencil | None = None
    rhs: str = "given"
    start: str = "given"
    map: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def n(self) -> int:
        """The number of unknowns."""
        return self.b.size


@dataclass(frozen=True, eq=False)
class Given:
    """A matrix or a vector from Python, in place of a file.

    A study cannot hold its numbers: it says their checksum, by which two studies are told apart.
    """

    values: Any  # a `csr_array`, or an array

    def __str__(self) -> str:
        values = self.values
        parts = (
            (values.indptr, values.indices, values.data) if hasattr(values, "indptr") else (values,)
        )
        return f"{'x'.join(map(str, values.shape))}, {GIVEN} ({_checksum(*parts)})"


GIVEN = "given in Python"
"""How a study says that it does not hold something itself."""


def refuse_given(text: str, what: str) -> None:
    """Refuse what a study says of something that was given in Python."""
    if GIVEN in text:
        raise InputError(f"{what}: it was {GIVEN}, and the study does not hold it: run it there")


def written_problem(problem: Problem | str | None) -> str | None:
    """Return how a study says what is solved."""
    if isinstance(problem, Problem) and problem.stencil is None and problem.map is None:
        A = problem.A
        checksum = _checksum(A.indptr, A.indices, A.data, problem.b, problem.x0)
        return f"{problem.name}, {GIVEN} ({checksum})"
    return None if problem is None else str(problem)


def _checksum(*parts: Any) -> str:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(np.ascontiguousarray(part).tobytes(), checksum)
    return f"checksum {checksum:08x}"


_SHOWN = 5


def as_csr(matrix: Any, name: str) -> csr_array:
    """Return a SciPy sparse matrix, or anything that NumPy reads as one, as a new `csr_array`.

    float64, indices sorted, duplicates summed, stored zeros dropped, int32 indices where they fit.
    """
    from scipy.sparse import csr_array, issparse

    if not issparse(matrix):
        refuse_masked(matrix, name)
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise InputError(f"{name}: a matrix has two dimensions, not {matrix.ndim}")
    if matrix.dtype.kind == "c":
        raise InputError(f"{name}: its entries are complex; only real matrices are solved")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{name}: its entries must be real numbers, not {matrix.dtype}")
    rows, columns = matrix.shape
    if rows != columns:
        raise InputError(f"{name}: the matrix must be square, not {rows} x {columns}")
    if rows == 0:
        raise InputError(f"{name}: the matrix has no rows")
    result = csr_array(matrix, dtype=np.float64, copy=True)
    result.sum_duplicates()
    wrong = np.flatnonzero(~np.isfinite(result.data))
    if wrong.size:
        row = int(np.searchsorted(result.indptr, wrong[0], side="right"))
        column = int(result.indices[wrong[0]]) + 1
        raise InputError(
            f"{name}: {_count(wrong.size, 'entry is', 'entries are')} NaN or infinite, the first "
            f"({result.data[wrong[0]]}) at row {row}, column {column}, counted from 1"
        )
    result.eliminate_zeros()
    if result.indptr[-1] < 2**31 and rows < 2**31:
        result.indptr = result.indptr.astype(np.int32, copy=False)
        result.indices = result.indices.astype(np.int32, copy=False)
    return result


def check_range(what: str, values: Any) -> None:
    """Refuse numbers, `what` in messages, that are not finite or cannot be squared."""
    largest = float(np.abs(values).max())
    if not math.isfinite(largest):
        raise InputError(f"the {what} is not finite: check A, b and x0 (or the map)")
    if largest and not LEAST_SQUARED < largest < MOST_SQUARED:
        raise InputError(
            f"the {what} is {largest:.3g}: its square leaves the range of floating-point numbers; "
            "scale A and b"
        )


LEAST_SQUARED, MOST_SQUARED = 1e-140, 1e140
"""Between them, sums of squares neither overflow nor lose digits."""


def norm_of_vector(values: Floats, infinity: bool) -> float:
    """Return the 2-norm or the maximum norm, whatever the size of the numbers."""
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(values, np.inf if infinity else 2))
        if infinity or LEAST_SQUARED < norm < MOST_SQUARED:
            return norm
        largest = float(np.abs(values).max())  # NaN for a NaN
        if largest == 0 or not math.isfinite(largest):
            return largest
        return largest * float(np.linalg.norm(values / largest))


def check_diagonal(matrix: csr_array, name: str) -> None:
    """Refuse a matrix with empty rows, or with zeros on the diagonal, by which methods divide."""
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if empty.size:
        raise InputError(
            f"{name}: {_count(empty.size, 'row is', 'rows are')} empty: {_list(empty)}"
        )
    diagonal = matrix.diagonal()
    zero = np.flatnonzero(diagonal == 0.0)
    with np.errstate(over="ignore", divide="ignore"):
        small = np.flatnonzero((diagonal != 0.0) & np.isinf(1 / diagonal))
    if small.size and not zero.size:
        raise InputError(
            f"{name}: the diagonal, by which a relaxation divides, is so small in "
            f"{_count(small.size, 'row', 'rows')} that its reciprocal is infinite: {_list(small)}: "
            "scale A and b"
        )
    if zero.size:
        raise InputError(
            f"{name}: the diagonal, by which a relaxation divides, is zero in "
            f"{_count(zero.size, 'row', 'rows')}: {_list(zero)}"
        )


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _list(rows: Ints) -> str:
    shown = ", ".join(str(row + 1) for row in rows[:_SHOWN])
    return f"{shown}{', ...' if rows.size > _SHOWN else ''} (counted from 1)"
