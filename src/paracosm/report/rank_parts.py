"""What the parts of a rank's iteration are called, and ranks that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PARTS", "Part", "ranks_alike", "shown_parts", "whole_of"]

LEAST = 5e-4  # of the time: a part below this in all bars is not worth a name


@dataclass(frozen=True)
class Part:
    """A part: its name, and which colour it has; none is left blank."""

    name: str
    color: int | None


PARTS: Mapping[str, Part] = {
    "compute": Part("compute", 0),
    "copies": Part("copies", 3),
    "exposed_communication": Part("exposed communication", 1),
    "waiting": Part("waiting for others", 4),
    "bubble": Part("pipeline bubble", 2),
    "launch": Part("launching", 5),
    "idle": Part("idle", None),
}


def shown_parts(breakdowns: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the parts that matter in one of the breakdowns at least; computing always does."""
    breakdowns = list(breakdowns)
    return [
        part
        for part in PARTS
        if part == "compute"
        or any(each.get(part, 0.0) > LEAST * whole_of(each) for each in breakdowns)
    ]


def whole_of(breakdown: Mapping[str, float]) -> float:
    """Return the seconds of all parts; what else is in the mapping is not looked at."""
    return sum(breakdown.get(part, 0.0) for part in PARTS)


def ranks_alike(alike: Mapping[str, Any]) -> str:
    """Name ranks that spend their time alike."""
    others = alike["ranks"] - 1
    return f"{alike['first']} and {others:,} alike" if others else str(alike["first"])
