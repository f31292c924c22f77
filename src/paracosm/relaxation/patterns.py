"""Patterns by name, and schedules of them: which processor updates which rows, and when."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from paracosm.errors import InputError, unknown
from paracosm.expression import bind, parse_expression
from paracosm.quantities import read_duration
from paracosm.relaxation.partition import (
    METHODS,
    Pattern,
    by_nonzeros,
    check_processors,
    contiguous,
    equal_blocks,
    graph,
    overlapping,
    pattern_from_blocks,
    pattern_from_owner,
)
from paracosm.relaxation.problems import Problem
from paracosm.units import parse_whole

_AFTER = re.compile(r"(?P<spec>.*?)(?:\s+after\s+(?P<time>.+))?", re.DOTALL)

Arguments = dict[str, str]


@dataclass(frozen=True)
class _Kind:
    build: Callable[[Problem, int, int, Arguments], Pattern]
    parameters: tuple[str, ...] = ()


def _cyclic(unknowns: int, processors: int) -> Pattern:
    check_processors(unknowns, processors)
    return pattern_from_owner(np.arange(unknowns) % processors, processors, "cyclic")


def _random(problem: Problem, processors: int, _seed: int, arguments: Arguments) -> Pattern:
    blocks = _count(arguments, "blocks", processors)
    return equal_blocks(f"random(blocks={blocks})", problem.n, processors, blocks, "random")


def _rotating(problem: Problem, processors: int, _seed: int, arguments: Arguments) -> Pattern:
    check_processors(problem.n, processors)
    blocks = _count(arguments, "blocks", min(2 * processors, problem.n))
    return equal_blocks(f"rotating(blocks={blocks})", problem.n, processors, blocks, "cyclic")


def _graph(problem: Problem, processors: int, seed: int, arguments: Arguments) -> Pattern:
    method = arguments.get("method", "auto")
    if method not in METHODS:
        raise unknown("method of pattern graph", method, METHODS)
    return graph(problem.A, processors, method, seed)


PATTERNS: dict[str, _Kind] = {
    "contiguous": _Kind(lambda problem, processors, _s, _g: contiguous(problem.n, processors)),
    "nonzeros": _Kind(
        lambda problem, processors, _s, _g: by_nonzeros(problem.A.indptr, processors)
    ),
    "graph": _Kind(_graph, ("method",)),
    "cyclic": _Kind(lambda problem, processors, _s, _g: _cyclic(problem.n, processors)),
    "random": _Kind(_random, ("blocks",)),
    "rotating": _Kind(_rotating, ("blocks",)),
    "overlapping": _Kind(
        lambda problem, processors, _s, given: overlapping(
            problem.n, processors, _count(given, "rows", 1)
        ),
        ("rows",),
    ),
}


@dataclass(frozen=True)
class _Named:
    name: str
    given: Arguments

    def dealt(self, problem: Problem, processors: int, seed: int) -> Pattern:
        return PATTERNS[self.name].build(problem, processors, seed, self.given)


@dataclass(frozen=True, eq=False)
class Patterns:
    """Which patterns a run has, before it is known whose rows they deal."""

    text: str  # as it was written; what was given otherwise has a name
    # (from when on, pattern), the first from 0: by name, made, or as blocks of rows
    schedule: tuple[tuple[float, _Named | Pattern | tuple[ArrayLike, ...]], ...]
    # (processor, update, u) -> rows, in place of a pattern
    choose: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def processors(self) -> int | None:
        """For how many processors it is made; None where it can be dealt to any number."""
        first = self.schedule[0][1]
        if isinstance(first, Pattern):
            return first.processors
        return None if isinstance(first, _Named) else len(first)

    def with_blocks(self, blocks: int) -> "Patterns":
        """Return the same with another number of blocks."""
        first = self.schedule[0][1]
        if not isinstance(first, _Named) or len(self.schedule) > 1 or self.choose is not None:
            first = _Named("", {})
        if "blocks" not in (PATTERNS[first.name].parameters if first.name else ()):
            raise InputError(
                f'blocks: patterns random and rotating have a number of them, "{self}" has not'
            )
        return parse_patterns(f"{first.name}(blocks={blocks})")

    def dealt(
        self, problem: Problem, processors: int, seed: int = 0
    ) -> tuple[tuple[float, Pattern], ...]:
        """Return the patterns of a problem's rows, with their first seconds; METIS takes `seed`."""
        if self.choose is not None:
            return ((0.0, contiguous(problem.n, processors)),)
        dealt = []
        for time, what in self.schedule:
            if isinstance(what, _Named):
                pattern = what.dealt(problem, processors, seed)
            elif isinstance(what, Pattern):
                pattern = what
            else:
                pattern = pattern_from_blocks(what, problem.n)
            if pattern.processors != processors:
                raise InputError(
                    f"pattern: {pattern.processors} blocks for {processors} processors"
                )
            dealt.append((time, pattern))
        return tuple(dealt)


def parse_patterns(value: Any) -> Patterns:
    """Return the patterns of "random(blocks=200)", or of "contiguous; cyclic after 100s".

        contiguous            consecutive rows, equally many
        nonzeros              consecutive rows, about equally many non-zeros
        graph(method=auto)    a graph partition: metis where it is installed, or bisection
        cyclic                rows dealt round-robin
        random(blocks=p)      equal blocks, any one of them drawn at every update
        rotating(blocks=2p)   equal blocks, a processor's own in turn
        overlapping(rows=1)   contiguous, with so many rows more on either side

    Args:
        value: text, a Pattern, a list of blocks of rows, or a function (processor, update, u).
    """
    if isinstance(value, Patterns):
        return value
    if callable(value):
        return Patterns("a function", ((0.0, _Named("contiguous", {})),), value)
    if isinstance(value, Pattern):
        return Patterns(value.name, ((0.0, value),))
    if not isinstance(value, str):
        try:
            return Patterns("custom", ((0.0, tuple(value)),))
        except TypeError:
            raise InputError(f"pattern: a name, or blocks of rows, not {value!r}") from None
    schedule: list[tuple[float, _Named]] = []
    for part in value.split(";"):
        match = _AFTER.fullmatch(part.strip())
        assert match
        if not match["spec"]:
            raise InputError(f'pattern "{value}": a pattern is missing beside ";"')
        if not schedule and match["time"] is not None:
            raise InputError(f'pattern "{value}": the first pattern holds from the beginning')
        if schedule and match["time"] is None:
            raise InputError(f'pattern "{value}": say since when: {match["spec"]} after 100s')
        time = read_duration(match["time"]) if match["time"] else 0.0
        if schedule and not schedule[-1][0] < time < float("inf"):
            raise InputError(f'pattern "{value}": the times must ascend')
        schedule.append((time, _named(match["spec"])))
    return Patterns(value, tuple(schedule))


def _named(spec: str) -> _Named:
    """Read "random(blocks=200)", or "random(200)" for the first parameter."""
    name, positional, named = parse_expression(spec, "pattern")
    if name not in PATTERNS:
        raise unknown("pattern", name, PATTERNS)
    return _Named(name, bind(name, positional, named, PATTERNS[name].parameters))


def _count(arguments: Arguments, key: str, default: int) -> int:
    value = arguments.get(key)
    if value is None:
        return default
    number = parse_whole(value)
    if number is None:
        raise InputError(f'pattern: {key} must be a whole number, not "{value[:40]}"')
    return number
