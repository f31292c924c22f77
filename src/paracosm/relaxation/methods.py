"""How a processor computes new values for its rows: the update function of the paper, by name."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from paracosm.errors import InputError, unknown
from paracosm.expression import bind, parse_expression
from paracosm.units import format_number, parse_number

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Method:
    """x_i + step_i, with r = b - A x as the processor read it.

    Args:
        omega: relaxation factor; None where the method chooses it from the matrix.
    """

    omega: float | None = 1.0
    name: ClassVar[str]
    positional: ClassVar[tuple[str, ...]] = ("omega", "beta")

    def __post_init__(self) -> None:
        if self.omega is not None and not (isfinite(self.omega) and self.omega != 0):
            raise InputError(f"{self.name}: omega must be finite and not 0, not {self.omega}")

    def __str__(self) -> str:
        """Return the shortest spelling, which `parse_method` reads back as an equal method."""
        arguments = [
            f"{field.name}={format_number(getattr(self, field.name))}"
            for field in fields(self)
            if field.default is MISSING or getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name


@dataclass(frozen=True)
class Jacobi(Method):
    """step_i = omega r_i / a_ii: eq. (8) of Coleman, Jensen, Sosonkina, weighted by omega."""

    name: ClassVar[str] = "jacobi"


@dataclass(frozen=True)
class GaussSeidel(Method):
    """Row after row of the block, each with the new values of the rows before it."""

    name: ClassVar[str] = "gauss-seidel"


@dataclass(frozen=True)
class SOR(Method):
    """Gauss-Seidel within the block with successive over-relaxation: step_i = omega r_i / a_ii."""

    omega: float | None = 1.5
    name: ClassVar[str] = "sor"

    def __post_init__(self) -> None:
        if self.omega is None or not 0 < self.omega < 2:
            raise InputError(f"sor: omega must be above 0 and below 2, not {self.omega}")


@dataclass(frozen=True)
class BlockJacobi(Method):
    """The block's own equations solved exactly: A_BB step_B = omega r_B."""

    name: ClassVar[str] = "block-jacobi"


@dataclass(frozen=True)
class Richardson(Method):
    """step = omega r; by default omega = 1 / ||A||_inf."""

    omega: float | None = None
    name: ClassVar[str] = "richardson"


@dataclass(frozen=True)
class SecondOrderRichardson(Method):
    """step = omega r + beta (x - x_previous): Richardson with momentum (Frankel, 1950)."""

    omega: float | None = None
    beta: float = 0.5
    name: ClassVar[str] = "second-order-richardson"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isfinite(self.beta):
            raise InputError(f"{self.name}: beta must be finite, not {self.beta}")


_MOST_COUNT = 1_000_000


@dataclass(frozen=True)
class Coordinate(Method):
    """Randomised coordinate relaxation: `count` rows of the block, drawn anew with replacement.

    Avron, Druinsky, Gupta, "Revisiting asynchronous linear solvers", J. ACM 62(6), 2015.
    """

    count: int = 1
    name: ClassVar[str] = "coordinate"
    positional: ClassVar[tuple[str, ...]] = ("count", "omega")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.count <= _MOST_COUNT or int(self.count) != self.count:
            raise InputError(
                f"coordinate: count is a whole number from 1 to {_MOST_COUNT:,}, not {self.count:g}"
            )


@dataclass(frozen=True)
class Anderson(Method):
    """Jacobi, and at every k-th update of a processor the mixture of its last steps.

    With the block's values y and steps f = omega D^-1 r of this update and of `window` before it,
    and their differences dY, dF: y + f - (dY + dF) g, where g minimises |f - dF g| (Anderson, J.
    ACM 12(4), 1965, as in Walker and Ni, SIAM J. Numer. Anal. 49(4), 2011; with every > 1 the
    alternating method of Pratapa, Suryanarayana, Pask, J. Comput. Phys. 306, 2016). Each processor
    mixes its own rows, so nobody waits; to it, what others wrote meanwhile is an error of f.
    """

    window: int = 3
    every: int = 1
    name: ClassVar[str] = "anderson"
    positional: ClassVar[tuple[str, ...]] = ("window", "every", "omega")

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, least, most in (("window", 0, 100), ("every", 1, 1_000_000)):
            value = getattr(self, what)
            if not least <= value <= most or int(value) != value:
                raise InputError(
                    f"anderson: {what} is a whole number from {least} to {most:,}, not {value:g}"
                )


_ALL = (
    *(Jacobi, GaussSeidel, SOR, BlockJacobi, Richardson, SecondOrderRichardson, Coordinate),
    Anderson,
)
METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}


def parse_method(text: str | Method) -> Method:
    """Return the method that `text` names: "jacobi", "jacobi(omega=0.8)", "sor(1.5)"."""
    if isinstance(text, Method):
        return text
    name, positional, named = parse_expression(text, "method")
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    fields_ = {field.name for field in fields(METHODS[name])}
    names = [key for key in METHODS[name].positional if key in fields_]
    numbers: dict[str, Any] = {}
    for key, value in bind(name, positional, named, names).items():
        number = parse_number(value, signed=True)
        whole = key in ("count", "window", "every") and number.is_integer()
        numbers[key] = int(number) if whole else number
    return METHODS[name](**numbers)


def checked_gain(method: Method, A: csr_array) -> Any:
    """Return `method_gain` of a matrix as it was given.

    Raises:
        InputError: the reciprocal of what it divides by is no finite number, or 0.
    """
    import numpy as np

    with np.errstate(over="ignore", divide="ignore"):
        gain = method_gain(method, A)
    wrong = np.flatnonzero(~np.isfinite(gain) | (gain == 0))
    if not wrong.size:
        return gain
    if not method_divides(method):
        raise InputError(
            f"{method.name}: omega is {gain[0]:g}, of entries too large: scale A and b"
        )
    row = int(wrong[0])
    raise InputError(
        f"{method.name} divides by the diagonal: {method.omega:g} / {A.diagonal()[row]:g} in row "
        f"{row + 1} is {gain[row]:g}: scale A and b"
    )


def method_gain(method: Method, A: csr_array) -> Any:
    """Return what each row's residual is multiplied with to give the step, shape (n,).

    With local solves: what the solution of the block's own equations is multiplied with.
    """
    import numpy as np

    if isinstance(method, Richardson | SecondOrderRichardson):
        omega = method.omega
        if omega is None:
            omega = 1.0 / float(abs(A).sum(axis=1).max())
        return np.full(A.shape[0], omega)
    assert method.omega is not None
    if isinstance(method, BlockJacobi):
        return np.full(A.shape[0], method.omega)
    return method.omega / A.diagonal()


def method_divides(method: Method) -> bool:
    """Say whether a method divides by the diagonal, so that zeros there are refused."""
    return not isinstance(method, Richardson | SecondOrderRichardson | BlockJacobi)


def gauss_seidel_of(method: Method) -> Method:
    """Return the method that updates row after row what `method` updates at once."""
    if isinstance(method, Jacobi):
        return GaussSeidel(method.omega)
    if isinstance(method, GaussSeidel | SOR):
        return method
    raise InputError(f"read gauss-seidel: goes with jacobi, gauss-seidel or sor, not {method}")
