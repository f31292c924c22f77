"""Targets of runs, such as "accuracy >= 0.95", and when they are reached."""

import re
from dataclasses import dataclass
from typing import Literal

from paracosm.errors import InputError, shown
from paracosm.units import format_number, parse_number

Comparison = Literal["<=", ">="]

METRICS: dict[str, Comparison] = {"loss": "<=", "test_loss": "<=", "accuracy": ">="}
"""Metrics of targets, and the direction of improvement."""

_SYNONYMS = {"test_accuracy": "accuracy", "acc": "accuracy"}  # accuracy is that of the test set

HELD = 3
"""Evaluations in a row that meet a target before it counts as reached."""

_TARGET = re.compile(r"\s*(\w+)\s*([<>]=?|=+)\s*(\S+)\s*")


@dataclass(frozen=True)
class Target:
    """A bound that a metric of the evaluations is to meet."""

    metric: str
    comparison: Comparison
    value: float

    def is_met(self, value: float) -> bool:
        """Whether a value meets it; one that is not a number never does."""
        return value <= self.value if self.comparison == "<=" else value >= self.value

    def is_better(self, value: float, other: float) -> bool:
        """Whether a value is better than another."""
        return value < other if self.comparison == "<=" else value > other

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {format_number(self.value)}"


def parse_target(text: object) -> Target:
    """Read "accuracy >= 0.95", "loss <= 0.1", "test_loss <= 0.1".

    Raises:
        InputError: it cannot be read, or a run that has learnt nothing would meet it.
    """
    match = _TARGET.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        said = f'"{text}"' if isinstance(text, str) else shown(text)
        raise InputError(
            f'cannot read {said} as a target: write it as "accuracy >= 0.95" or "loss <= 0.1"'
        )
    metric, comparison, value = match.groups()
    metric = _SYNONYMS.get(metric, metric)
    if metric not in METRICS:
        raise InputError(f'unknown metric "{metric}": choose from {", ".join(METRICS)}')
    if comparison != METRICS[metric]:
        raise InputError(f'"{text}": write {metric} {METRICS[metric]} {value}')
    return Target(metric, METRICS[metric], parse_number(value))


class FirstPassage:
    """Tells when a target is reached: at the first of several evaluations in a row that meet it.

    Attributes:
        reached_at: the virtual time of that evaluation, in seconds; None until there is one.
        reached_updates: the number of updates at it.
        best: the best value so far; None before any.
    """

    def __init__(self, target: Target, held: int = HELD) -> None:
        self.target = target
        self.reached_at: float | None = None
        self.reached_updates: int | None = None
        self.best: float | None = None
        self._held = held
        self._met: list[tuple[float, int]] = []

    def see(self, time: float, updates: int, value: float) -> bool:
        """Record an evaluation; return whether the target is reached."""
        if self.reached_at is not None:
            return True
        if self.best is None or self.target.is_better(value, self.best):
            self.best = None if value != value else value
        if not self.target.is_met(value):
            self._met.clear()
            return False
        self._met.append((time, updates))
        if len(self._met) == self._held:
            self.reached_at, self.reached_updates = self._met[0]
        return self.reached_at is not None

    def interrupt(self) -> None:
        """Forget the evaluations in a row that met the target so far."""
        self._met.clear()
