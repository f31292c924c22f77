"""How much work clients do between two messages, where that is not one number for all."""

import re
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.quantities import read_duration
from paracosm.units import format_duration, parse_whole

MOST_LOCAL_STEPS = 1_000_000


@dataclass(frozen=True)
class UniformSteps:
    """A number of steps that each participation draws: `least` to `most`, all equally likely."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"uniform({self.least}, {self.most})"

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.least, self.most, endpoint=True))


@dataclass(frozen=True)
class StepsWithin:
    """As many steps as fit into a time of computing, at least one."""

    seconds: float

    def __str__(self) -> str:
        return format_duration(self.seconds, exact=True).replace(" ", "")


LocalWork = int | UniformSteps | StepsWithin
"""The steps of a client: as many for all, a number that is drawn, or those that fit into a time."""

_UNIFORM = re.compile(r"uniform\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def read_steps(algorithm: str, value: Any) -> LocalWork:
    """Read `8`, `uniform(1, 20)` or `10s`.

    Raises:
        InputError: it is none of these, or asks for fewer steps than one.
    """
    if isinstance(value, UniformSteps | StepsWithin):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        steps = value
    else:
        text = str(value).strip().strip("\"'")
        if match := _UNIFORM.fullmatch(text):
            least, most = (parse_whole(number, MOST_LOCAL_STEPS) for number in match.groups())
            if not least or not most or least > most:
                raise InputError(
                    f"{algorithm}: steps={text}: write uniform(1, 20), from at least 1 to at most "
                    f"{MOST_LOCAL_STEPS:,}"
                )
            return UniformSteps(least, most)
        if text.lstrip("+-").isdecimal():
            steps = int(text[:20])
        else:
            return StepsWithin(_seconds(algorithm, text))
    if not steps >= 1:
        raise InputError(f"{algorithm}: steps must be at least 1, got {steps}")
    return steps


def part_of(work: int, rng: np.random.Generator) -> int:
    """Return which part of so many steps or passes a straggler does: 1 to all, equally likely.

    Li et al., "Federated Optimization in Heterogeneous Networks", 2020, section 5.2.
    """
    return int(rng.integers(1, work, endpoint=True))


def straggler_count(share: float, workers: int) -> int:
    """Return how many of the workers of a round are stragglers; the others are rounded as there."""
    return workers - round(workers * (1 - share))


def mean_steps(steps: LocalWork) -> int:
    """Return about how many steps a client makes; 1 where its speed decides."""
    if isinstance(steps, UniformSteps):
        return (steps.least + steps.most) // 2
    return steps if isinstance(steps, int) else 1


def _seconds(algorithm: str, text: str) -> float:
    try:
        seconds = read_duration(text)
    except InputError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise InputError(
            f'{algorithm}: steps must be a whole number, "uniform(1, 20)" of them, or the time '
            f'that they fit into, such as 10s, got "{text}"'
        )
    return seconds
