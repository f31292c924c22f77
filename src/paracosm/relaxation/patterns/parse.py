"""Patterns by name, and schedules of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paracosm.errors import InputError, unknown
from paracosm.relaxation.patterns.contiguous import (
    by_nonzeros,
    check_processors,
    contiguous,
    equal_blocks,
    overlapping,
)
from paracosm.relaxation.patterns.graph import METHODS, graph, pattern_from_owner
from paracosm.relaxation.patterns.pattern import Pattern
from paracosm.relaxation.problems import Problem
from paracosm.units import parse_duration

__all__ = ["PATTERNS", "parse_pattern", "parse_patterns"]

_SPEC = re.compile(r"\s*(?P<name>[\w-]+)\s*(?:\((?P<arguments>[^()]*)\))?\s*")
_AFTER = re.compile(r"(?P<spec>.*?)(?:\s+after\s+(?P<time>.+))?", re.DOTALL)

Arguments = dict[str, str]


@dataclass(frozen=True)
class _Kind:
    build: Callable[[Problem, int, int, Arguments], Pattern]
    parameters: tuple[str, ...] = ()


def _cyclic(unknowns: int, processors: int) -> Pattern:
    check_processors(unknowns, processors)
    return pattern_from_owner(np.arange(unknowns) % processors, processors, "cyclic")


def _random(problem: Problem, processors: int, _seed: int, given: Arguments) -> Pattern:
    blocks = _count(given, "blocks", processors)
    return equal_blocks(f"random(blocks={blocks})", problem.n, processors, blocks, "random")


def _rotating(problem: Problem, processors: int, _seed: int, given: Arguments) -> Pattern:
    check_processors(problem.n, processors)
    blocks = _count(given, "blocks", min(2 * processors, problem.n))
    return equal_blocks(f"rotating(blocks={blocks})", problem.n, processors, blocks, "cyclic")


def _graph(problem: Problem, processors: int, seed: int, given: Arguments) -> Pattern:
    method = given.get("method", "auto")
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


def parse_pattern(spec: str, problem: Problem, processors: int, seed: int = 0) -> Pattern:
    """Return the pattern that `spec` names, "contiguous" or "random(blocks=200)".

        contiguous            consecutive rows, equally many
        nonzeros              consecutive rows, about equally many non-zeros
        graph(method=auto)    a graph partition: metis where it is installed, or bisection
        cyclic                rows dealt round-robin
        random(blocks=p)      equal blocks, any one of them drawn at every update
        rotating(blocks=2p)   equal blocks, a processor's own in turn
        overlapping(rows=1)   contiguous, with so many rows more on either side

    Args:
        spec: which pattern.
        problem: whose rows are dealt.
        processors: to how many.
        seed: of METIS; the draws of "random" are made during the run.

    Raises:
        InputError: an unknown name or argument, or a value that cannot be.
        MissingExtraError: graph(method=metis) without pymetis.
    """
    match = _SPEC.fullmatch(spec)
    if not match:
        raise InputError(f'cannot read the pattern "{spec}": write one such as random(blocks=200)')
    name = match["name"]
    kind = PATTERNS.get(name)
    if kind is None:
        raise unknown("pattern", name, PATTERNS)
    return kind.build(problem, processors, seed, _arguments(name, kind, match["arguments"] or ""))


def parse_patterns(
    spec: str, problem: Problem, processors: int, seed: int = 0
) -> list[tuple[float, Pattern]]:
    """Return the patterns of "contiguous; cyclic after 100s", each with its first virtual second.

    Raises:
        InputError: as `parse_pattern`, or times that do not ascend from 0.
        MissingExtraError: as `parse_pattern`.
    """
    schedule: list[tuple[float, Pattern]] = []
    for part in spec.split(";"):
        match = _AFTER.fullmatch(part.strip())
        assert match
        if not match["spec"]:
            raise InputError(f'pattern "{spec}": a pattern is missing beside ";"')
        if not schedule and match["time"] is not None:
            raise InputError(f'pattern "{spec}": the first pattern holds from the beginning')
        if schedule and match["time"] is None:
            raise InputError(f'pattern "{spec}": say since when: {match["spec"]} after 100s')
        time = parse_duration(match["time"]) if match["time"] else 0.0
        if schedule and not schedule[-1][0] < time < float("inf"):
            raise InputError(f'pattern "{spec}": the times must ascend')
        schedule.append((time, parse_pattern(match["spec"], problem, processors, seed)))
    return schedule


def _arguments(name: str, kind: _Kind, text: str) -> Arguments:
    """Read "blocks=200", or "200" alone for the first parameter."""
    given: Arguments = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (word.strip() for word in part.rpartition("="))
        if not equals and kind.parameters and not given:
            key = kind.parameters[0]
        if not kind.parameters:
            raise InputError(f'pattern {name}: it has no arguments, not "{part}"')
        if key not in kind.parameters:
            raise unknown(f"argument of pattern {name}", key or value, kind.parameters)
        if key in given:
            raise InputError(f"pattern {name}: {key} is given twice")
        given[key] = value
    return given


def _count(given: Arguments, key: str, default: int) -> int:
    value = given.get(key)
    if value is None:
        return default
    if not value.isdecimal():
        raise InputError(f'pattern: {key} must be a whole number, not "{value}"')
    return int(value)
