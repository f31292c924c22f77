"""What a tuning may change, and between which bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, log

from paracosm.errors import InputError, unknown
from paracosm.units import format_number, parse_duration, parse_number

__all__ = ["PARAMETERS", "Parameter", "complete_checkpoint", "parse_space"]

_USAGE = 'write "alpha=1.05..20, omega=1..500"'
_POLICY = ("alpha", "omega")


@dataclass(frozen=True)
class _Kind:
    log: bool
    whole: bool = False
    read: Callable[[str], float] = parse_number


PARAMETERS: dict[str, _Kind] = {
    "alpha": _Kind(log=True),
    "omega": _Kind(log=True, read=parse_duration),
    "relaxation": _Kind(log=False),
    "processors": _Kind(log=True, whole=True),
    "blocks": _Kind(log=True, whole=True),
}
"""alpha and omega of the checkpoint policy (omega in seconds), the method's relaxation factor, the
number of processors, the number of blocks of the patterns random and rotating."""


@dataclass(frozen=True)
class Parameter:
    """One of `PARAMETERS` between two bounds, both included.

    Raises:
        InputError: an unknown name, or bounds that cannot be.
    """

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.name not in PARAMETERS:
            raise unknown("parameter to tune", self.name, PARAMETERS)
        if not 0 < self.low < self.high < inf:
            raise InputError(
                f"{self.name}: bounds are above 0, finite and ascending, not {self.low:g}.."
                f"{self.high:g}"
            )
        if self.is_whole and not (self.low == int(self.low) and self.high == int(self.high)):
            raise InputError(f"{self.name}: bounds are whole numbers")

    @property
    def is_log(self) -> bool:
        """Whether the search is on a logarithmic scale."""
        return PARAMETERS[self.name].log

    @property
    def is_whole(self) -> bool:
        """Whether values are whole numbers."""
        return PARAMETERS[self.name].whole

    def at(self, share: float) -> float:
        """Return the value at `share`, 0 to 1, of the way from one bound to the other."""
        if self.is_log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        return self.rounded(value)

    def share(self, value: float) -> float:
        """Return how far along `value` lies, 0 to 1: the inverse of `at`."""
        if self.is_log:
            return log(value / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def rounded(self, value: float) -> float:
        """Return `value` to four digits, so that what is printed is what was run."""
        digits = round(value) if self.is_whole else float(f"{value:.4g}")
        return min(max(digits, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.name}={format_number(self.low)}..{format_number(self.high)}"


def parse_space(text: str) -> tuple[Parameter, ...]:
    """Return the parameters of "alpha=1.05..20, omega=1s..500s".

    Raises:
        InputError: one line that names what cannot be read.
    """
    parameters: dict[str, Parameter] = {}
    for part in text.split(","):
        name, equals, bounds = (piece.strip() for piece in part.partition("="))
        low, dots, high = (piece.strip() for piece in bounds.partition(".."))
        if not (name and equals and low and dots and high):
            raise InputError(f'tune: cannot read "{part.strip()}": {_USAGE}')
        if name not in PARAMETERS:
            raise unknown("parameter to tune", name, PARAMETERS)
        if name in parameters:
            raise InputError(f"tune: {name} is given twice")
        read = PARAMETERS[name].read
        try:
            parameters[name] = Parameter(name, read(low), read(high))
        except InputError as error:
            message = str(error).removeprefix(f"{name}: ")
            raise InputError(f"tune: {name}: {message}") from None
    return tuple(parameters.values())


def complete_checkpoint(text: str | None, space: Iterable[Parameter]) -> str | None:
    """Return a checkpoint policy as it is written, with the lower bounds of what is tuned in it.

    Raises:
        InputError: it says what is to be tuned.
    """
    tuned = {parameter.name: parameter.low for parameter in space if parameter.name in _POLICY}
    if not tuned:
        return text
    written = [part.strip() for part in (text or "").split(",") if part.strip()]
    for part in written:
        if (name := part.partition("=")[0].strip()) in tuned:
            raise InputError(f"checkpoint: {name} is to be tuned: leave it out here")
    return ", ".join(
        [*written, *(f"{name}={format_number(value)}" for name, value in tuned.items())]
    )
