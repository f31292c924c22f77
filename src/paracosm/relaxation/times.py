"""How long updates take: the update-time function of the paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.timing import Distribution, parse_distribution

__all__ = ["PHASES", "MeasuredTimes", "TimeFunction", "Times", "parse_times"]

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

    @property
    def processors(self) -> int | None:
        """For how many processors they are; None where all have the same."""
        return len(self.updates) if len(self.updates) > 1 else None

    def as_written(self) -> Any:
        """Return what `parse_times` reads back: a text, a list or a mapping of them."""
        if not self.updates:
            return self.source
        if self.phases == 3:
            said = {name: str(part) for name, part in zip(PHASES, self.updates[0], strict=True)}
            return {**said, "joint": True} if self.joint else said
        written = [str(update[0]) for update in self.updates]
        return written if len(written) > 1 else written[0]

    def on(self, speeds: Sequence[float]) -> Times:
        """Return the times on processors of these relative speeds, which divide the durations.

        Raises:
            InputError: not as many distributions, or times that a function of the user's says.
        """
        if len(self.updates) not in (0, 1, len(speeds)):
            raise InputError(
                f"time: {len(self.updates)} distributions for {len(speeds)} processors: "
                "give one for all, or one for each"
            )
        if all(speed == 1.0 for speed in speeds):
            return self
        if self.function is not None:
            raise InputError(
                "time: a function says durations as they are; speeds have no effect on it"
            )
        updates = tuple(
            tuple(phase.scaled(speed) for phase in self.of(who)) for who, speed in enumerate(speeds)
        )
        return replace(self, updates=updates, source=f"{self.source}, at given speeds")


@dataclass(frozen=True)
class MeasuredTimes:
    """Times in a file that `paracosm relax measure` wrote: which, depends on the processors.

    Attributes:
        text: path and options: "measured.json(variant=race, threads=2)".
    """

    text: str
    processors: ClassVar[int | None] = None

    def as_written(self) -> str:
        """Return what `parse_times` reads back."""
        return self.text

    def on(self, speeds: Sequence[float]) -> Times:
        """Return the times on processors of these relative speeds, as `Times.on`.

        Raises:
            InputError: as `Times.on`; the file cannot be read, or was not measured so.
        """
        from paracosm.relaxation.threads.times import times_from_file

        return times_from_file(self.text, len(speeds)).on(speeds)


def parse_times(value: Any) -> Times | MeasuredTimes:
    """Return the times that `value` says.

    Args:
        value: a distribution, or its string, for all processors; a sequence of them, one for each,
            or "normal(10, 1); normal(20, 1)"; a mapping with distributions for copy, compute and
            update, and `joint`, or "copy=2, compute=10, update=1"; a function (`TimeFunction`); a
            file that `paracosm relax measure` wrote, as a path, or with options:
            "measured.json(variant=race, threads=2)"; or Times.

    Raises:
        InputError: what cannot be read.
    """
    value = _read_spelling(value)
    if isinstance(value, Times | MeasuredTimes):
        return value
    if _is_file(value):
        return MeasuredTimes(str(value))
    if isinstance(value, Mapping) and set(value) & {*PHASES, "joint"}:
        return _from_phases(value)
    if callable(value) and not isinstance(value, Distribution):
        return Times((), function=value, source="a function of the user's")
    if isinstance(value, Sequence) and not isinstance(value, str):
        parsed = [parse_distribution(part) for part in value]
        if not parsed:
            raise InputError("time: an empty list: give one distribution for each processor")
        listed = ", ".join(_short(part) for part in parsed[:3]) + (
            ", ..." if len(parsed) > 3 else ""
        )
        return Times(tuple((part,) for part in parsed), source=f"one each: {listed}")
    distribution = parse_distribution(value)
    return Times(((distribution,),), source=_short(distribution))


def _read_spelling(value: Any) -> Any:
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
