"""How long updates take: the update-time function of the paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.timing import Distribution, parse_distribution

__all__ = ["PHASES", "TimeFunction", "Times", "read_spelling", "read_times"]

PHASES = ("copy", "compute", "update")

TimeFunction = Callable[[int, int, float], float]
"""(processor, number of its update, uniform random number in (0, 1)) -> seconds."""

Phases = tuple[Distribution, ...]


@dataclass(frozen=True)
class Times:
    """Durations of updates, by processor and phase.

    Attributes:
        updates: for each processor, or for all of them if there is one, the duration of an update
            or of its phases copy, compute and update.
        joint: whether the phases of one update are drawn together: from one uniform number, so that
            samples of equal length give phases that were measured together.
        residual: the same for the residual processor, where it was measured or given.
        function: a function of the user's in place of distributions.
        source: how these durations are known, for the record.
        caution: why they may not be what they seem; empty if nothing is known against them.
    """

    updates: tuple[Phases, ...]
    joint: bool = False
    residual: Phases | None = None
    function: TimeFunction | None = None
    source: str = "assumed"
    caution: str = ""

    @property
    def phases(self) -> int:
        """How many phases an update has: 1 or 3."""
        return len(self.updates[0]) if self.updates else 1

    def of(self, processor: int) -> Phases:
        """Return the phases of one processor."""
        return self.updates[processor if len(self.updates) > 1 else 0]

    def mean(self, processors: int) -> float:
        """Return the mean duration of an update over all processors, in seconds; 0 if unknown."""
        if not self.updates:
            return 0.0
        means = [sum(phase.mean() for phase in self.of(who)) for who in range(processors)]
        return sum(means) / processors


def read_times(value: Any, processors: int) -> Times:
    """Return the times that `value` says.

    Args:
        value: a distribution, or its string, for all processors; a sequence of them, one for each;
            a mapping with distributions for copy, compute and update, and `joint`; a function
            (`TimeFunction`); a file that `paracosm relax measure` wrote, as a path, or with
            options: "measured.json(variant=race, threads=2)"; or Times.
        processors: how many there are.

    Raises:
        InputError: what cannot be read, or the wrong number of distributions.
    """
    value = read_spelling(value)
    if isinstance(value, Times):
        times = value
    elif _is_file(value):
        from paracosm.relaxation.threads.times import times_from_file

        times = times_from_file(str(value), processors)
    elif isinstance(value, Mapping) and set(value) & {*PHASES, "joint"}:
        times = _from_phases(value)
    elif callable(value) and not isinstance(value, Distribution):
        times = Times((), function=value, source="a function of the user's")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parsed = [parse_distribution(part) for part in value]
        listed = ", ".join(_short(part) for part in parsed[:3]) + (
            ", ..." if len(parsed) > 3 else ""
        )
        times = Times(tuple((part,) for part in parsed), source=f"one each: {listed}")
    else:
        distribution = parse_distribution(value)
        times = Times(((distribution,),), source=_short(distribution))
    if len(times.updates) not in (0, 1, processors):
        raise InputError(
            f"time: {len(times.updates)} distributions for {processors} processors: "
            "give one for all, or one for each"
        )
    return times


def read_spelling(value: Any) -> Any:
    """Return what a flag's text spells: a list or a mapping, as a study file would write it.

    "normal(10, 1); normal(20, 1)" is one distribution for each processor, "copy=2, compute=10,
    update=1, joint=true" one for each phase. Anything else is returned as it is.
    """
    if not isinstance(value, str):
        return value
    if ";" in value:
        return [part.strip() for part in value.split(";")]
    starts = list(_PHASE.finditer(value))
    if not starts or starts[0].start() != 0:
        return value
    ends = [match.start() for match in starts[1:]] + [len(value)]
    phases: dict[str, Any] = {}
    for match, end in zip(starts, ends, strict=True):
        if match[1] in phases:
            raise InputError(f"time: {match[1]} is given twice")
        phases[match[1]] = value[match.end() : end].strip().rstrip(",").strip()
    return phases


_PHASE = re.compile(r"(?:(?<=,)|^)\s*(copy|compute|update|joint)\s*=")


def _short(distribution: Distribution) -> str:
    """Return the spelling of a distribution, without its samples where there are many."""
    samples = getattr(distribution, "samples", ())
    if len(samples) > 10:
        return f"{distribution.name} of {len(samples):,} samples"
    return str(distribution)


def at_speeds(times: Times, speeds: Sequence[float]) -> Times:
    """Return the times on processors of other relative speeds, which divide the durations.

    Raises:
        InputError: times that a function of the user's says.
    """
    if all(speed == 1.0 for speed in speeds):
        return times
    if times.function is not None:
        raise InputError("time: a function says durations as they are; speeds have no effect on it")
    updates = tuple(
        tuple(phase.scaled(speed) for phase in times.of(who)) for who, speed in enumerate(speeds)
    )
    return replace(times, updates=updates, source=f"{times.source}, at given speeds")


def _is_file(value: Any) -> bool:
    if isinstance(value, Path):
        return True
    if not isinstance(value, str):
        return False
    name = value.split("(", 1)[0].strip()
    return name.endswith(".json")


def _from_phases(value: Mapping[str, Any]) -> Times:
    unknown_keys = set(value) - {*PHASES, "joint"}
    if unknown_keys or not set(value) >= set(PHASES):
        raise InputError(
            "time: write copy, compute and update, and joint: true if they go together"
        )
    phases = tuple(parse_distribution(value[phase]) for phase in PHASES)
    joint = {"true": True, "false": False}.get(str(value.get("joint", False)).lower())
    if joint is None:
        raise InputError(f"time: joint is true or false, not {value['joint']}")
    source = ", ".join(
        f"{name} {_short(phase)}" for name, phase in zip(PHASES, phases, strict=True)
    )
    return Times((phases,), joint, source=source)
