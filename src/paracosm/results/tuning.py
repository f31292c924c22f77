"""What a tuning varies, and how it learns how good the values of a trial are. The search
(`paracosm.studies.tuning`) draws values; an evaluator runs the trials.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from typing import Any, Protocol

from paracosm.errors import InputError
from paracosm.results.kind import Hooks
from paracosm.units import format_number

Values = Mapping[str, Any]
"""The values of a trial by parameter, as they are run."""


@dataclass(frozen=True)
class Argument:
    """How the range of an argument is read."""

    whole: bool = False  # takes whole numbers alone
    log: bool = False  # has a logarithmic scale without " log"
    positive: bool = False  # takes a range of numbers above 0, not a list of values
    # of a bound with its unit, for numbers in SI units; otherwise values keep the unit
    read: Callable[[str], float] | None = None
    check: Callable[[str], object] | None = None  # raises InputError for a bound without its unit


@dataclass(frozen=True)
class Parameter:
    """An argument that is varied: between two bounds, both included, or among several values."""

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    unit: str = ""  # behind each number
    choices: tuple[str, ...] = ()

    @property
    def first(self) -> Any:
        """The lower bound, or the first of several values."""
        return self.choices[0] if self.choices else self.written(self.low)

    @property
    def ends(self) -> list[Any]:
        """The bounds, or all values."""
        return list(self.choices) or [self.written(self.low), self.written(self.high)]

    def written(self, value: Any) -> Any:
        """Return a value as a study has it, to four digits, so that printed values are those that
        were run.
        """
        if self.choices:
            return value
        number = round(value) if self.whole else float(f"{value:.4g}")
        number = min(max(number, self.low), self.high)
        return f"{format_number(number)}{self.unit}" if self.unit else number

    def at(self, share: float) -> Any:
        """Return the value at `share`, 0 to 1, of the way from one bound to the other."""
        if self.log:
            return self.written(self.low * (self.high / self.low) ** share)
        return self.written(self.low + (self.high - self.low) * share)

    def share(self, value: float) -> float:
        """Return the position of `value` between the bounds, 0 to 1: the inverse of `at`."""
        if self.log:
            return log(value / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Measured:
    """What the runs of a trial, one for each seed, came to."""

    objective: float  # infinite, or minus infinity if it is maximised, where it was not reached
    columns: Mapping[str, float]  # of its row in trials.csv
    numbers: Mapping[str, Any]  # of the summary
    second: float = 0.0  # decides, as the objective does, between trials of equal objective


@dataclass(frozen=True)
class Trial:
    """One point of the search."""

    number: int
    values: Values
    measured: Measured  # under the seeds of the search


Ran = Callable[[int], None]
"""Called with a number of further runs that are done, or need not be made."""


class Evaluator(Protocol):
    """Runs trials, and knows what is best to try; it refuses what cannot be tuned when made."""

    objective: str  # name of the number
    maximize: bool
    trials: int  # by default
    seeds: int  # runs of each, by default
    at_a_time: int  # trials suggested at a time, whatever the jobs
    space: dict[str, Parameter]  # what is varied

    def total(self, trials: int, seeds: int) -> int:
        """Return the number of runs."""

    def drawn_first(self, trials: int) -> int:
        """Return how many trials are drawn before others are suggested by those done."""

    def points(self, trials: int, seed: int) -> Sequence[Mapping[str, float]]:
        """Return the numbers of the first trials; without any, they are drawn at random."""

    def begin(self, seeds: range, folder: Path, hooks: Hooks, ran: Ran) -> None:
        """Prepare trials with seeds; what they write goes to a folder."""

    def measure(self, trials: Mapping[int, Values], seeds: range) -> list[Measured]:
        """Run trials, by their numbers."""

    def validate(self, best: Values, seeds: range) -> dict[str, Measured]:
        """Run the best with fresh seeds, and what it is compared with, by name."""

    def result(
        self, trials: Sequence[Trial], best: Trial, validation: Mapping[str, Measured]
    ) -> dict[str, Any]:
        """Return further fields of the summary; without validation the search was interrupted."""

    def study(self, best: Trial, validation: Mapping[str, Measured]) -> Mapping[str, Any] | None:
        """Return the content of a study file with the best values; None without one."""


EXAMPLE = "lr=0.01..1 log, algorithm=asgd|ssgd"

_COMMA = re.compile(r",(?![^()]*\))")
_BOUND = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_UNIT = r"(?!log)[A-Za-z/]*"
_RANGE = re.compile(
    rf"(?P<low>{_BOUND})\s*(?P<low_unit>{_UNIT})\s*\.\.\s*(?P<high>{_BOUND})\s*(?P<unit>{_UNIT})"
    r"(?P<log>\s*log)?"
)


def read_space(text: str, argument: Callable[[str], Argument]) -> dict[str, Parameter]:
    """Return what "lr=0.01..1 log, latency=1..50ms, algorithm=asgd|ssgd" varies.

    Args:
        text: the parameters.
        argument: of a name returns how its range is read, and raises InputError for other names.

    Raises:
        InputError: it cannot be read.
    """
    space: dict[str, Parameter] = {}
    for part in _COMMA.split(text):
        name, _, values = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not (name and values):
            raise InputError(f'tune: cannot read "{part.strip()}": write "{EXAMPLE}"')
        if name in space:
            raise InputError(f"tune: {name} is given twice")
        space[name] = _parameter(name, values, argument(name))
    return space


def _parameter(name: str, values: str, argument: Argument) -> Parameter:
    match = _RANGE.fullmatch(values)
    if match is None or (match["low_unit"] and argument.read is None):
        choices = tuple(part.strip() for part in values.split("|"))
        if argument.positive or len(set(choices)) < max(len(choices), 2):
            several = "" if argument.positive else ", or several values, such as asgd|ssgd"
            raise InputError(
                f"tune: {name}: give a range with one unit, such as 1..50ms or 0.01..1 log"
                f"{several}, not {values}"
            )
        return Parameter(name, choices=choices)
    unit, is_log = match["unit"], bool(match["log"]) or argument.log
    low, high = float(match["low"]), float(match["high"])
    try:
        if argument.check is not None:
            argument.check(match["high"] + unit)
        if argument.read is not None:
            low = argument.read(match["low"] + (match["low_unit"] or unit))
            high, unit = argument.read(match["high"] + unit), ""
    except InputError as error:
        raise InputError(f"tune: {name}: {error}") from None
    is_above_zero = argument.positive or is_log
    fits = low < high < inf and not (is_above_zero and low <= 0)
    if not fits or (argument.whole and (low % 1 or high % 1)):
        needed = f"{', whole numbers' * argument.whole}{', above 0' * is_above_zero}"
        raise InputError(f"tune: {name}: bounds are finite, ascending{needed}, not {values}")
    return Parameter(name, low, high, is_log, argument.whole, unit)
