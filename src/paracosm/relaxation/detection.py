"""Who notices that the iteration has converged, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression
from paracosm.timing import Distribution, parse_distribution
from paracosm.units import parse_number

__all__ = ["Detection", "parse_detection"]

By = Literal["ideal", "processor", "local"]


@dataclass(frozen=True)
class Detection:
    """The residual test.

    Attributes:
        by: "ideal": an observer who sees the norm of the residual at every instant, at no cost.
            "processor": a processor of its own that reads x, computes the norm, and knows it a
            while later (Algorithm 3 of Coleman, Jensen, Sosonkina). "local": every processor adds
            the residual of its own rows to a shared sum at every k-th update, and processor 0 looks
            at the sum after each of its updates (Algorithm 4).
        time: how long the residual processor takes; None: as long as measured, or an update.
        every: k.
    """

    by: By = "ideal"
    time: Distribution | None = None
    every: int = 1

    def __str__(self) -> str:
        if self.by == "processor":
            return "processor" if self.time is None else f"processor(time={self.time})"
        return f"local(every={self.every})" if self.by == "local" else "ideal"


def parse_detection(value: str | Detection) -> Detection:
    """Return the residual test of "ideal", "processor", "processor(time=20ms)", "local(every=10)".

    Raises:
        InputError: another name, or a parameter that it does not have.
    """
    if isinstance(value, Detection):
        return value
    if not isinstance(value, str):
        raise InputError(f"residual test: write ideal, processor or local, not {value!r}")
    text = value.strip()
    if text.startswith("processor(") and text.endswith(")"):
        inside = text[len("processor(") : -1].strip()
        return Detection("processor", parse_distribution(inside.removeprefix("time=").strip()))
    name, positional, named = parse_expression(text, "residual test")
    if name not in ("ideal", "processor", "local"):
        raise unknown("residual test", name, ("ideal", "processor", "local"))
    given = [*positional, *named.values()]
    if (given and name != "local") or set(named) - {"every"} or len(given) > 1:
        raise InputError(
            f'cannot read "{text}": write ideal, processor(time=20ms) or local(every=10)'
        )
    if name != "local":
        return Detection(
            "ideal" if name == "ideal" else "processor" if name == "processor" else "local"
        )
    if not given:
        return Detection("local")
    every = parse_number(given[0])
    if every < 1 or every != int(every):
        raise InputError(f"local: every is a whole number from 1, not {given[0]}")
    return Detection("local", every=int(every))
