"""How long ops of the script's own take, as `--cost "my_op: 120 us"` says: nobody else knows.

Such an op is a custom op of PyTorch (`torch.library`) or a kernel of Triton. In a recording its
name is that by which it was called, behind `CUSTOM`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.quantities import read_duration
from paracosm.units import format_duration

CUSTOM = "custom."
"""What names of ops of the script's own begin with: "custom.mylib::my_op"."""

_EXAMPLE = '--cost "my_op: 120 us"'


@dataclass(frozen=True, slots=True)
class OpCost:
    """One of `--cost`."""

    name: str  # "my_op", or "mylib::my_op"
    seconds: float  # of each call

    def __str__(self) -> str:
        return f"{self.name}: {format_duration(self.seconds, exact=True)}"


def parse_cost(text: str) -> OpCost:
    """Return what a text of `--cost` says."""
    name, colon, value = (part.strip() for part in str(text).rpartition(":"))
    try:
        if not colon or not name or not value:
            raise InputError(f"write NAME: DURATION, as in {_EXAMPLE}")
        seconds = read_duration(value)
        if not 0 <= seconds < float("inf"):
            raise InputError("a duration is 0 or more, and finite")
    except InputError as error:
        raise InputError(f'cost "{text}": {error}') from None
    return OpCost(name.replace(".", "::"), seconds)


def cost_of(op: str, costs: Iterable[OpCost]) -> float | None:
    """Return the seconds of an op of the script's own, by its name; the last one given counts."""
    whole = op.removeprefix(CUSTOM)
    short = whole.rpartition("::")[2]
    seconds = [cost.seconds for cost in costs if cost.name in (whole, short)]
    return seconds[-1] if seconds else None


def with_cost(op: str) -> str:
    """Return the name of an op, with the flag that says how long it takes."""
    name = op.removeprefix(CUSTOM).removeprefix("triton::")
    flag = f'--cost "{name.rpartition("::")[2]}: 120 us"'
    return f"{name} (say how long it takes: {flag})"


def given_seconds(op: str, costs: Iterable[OpCost]) -> float:
    """Return the seconds of an op of the script's own; an InputError if nobody has said them."""
    seconds = cost_of(op, costs)
    if seconds is None:
        raise InputError(f"nobody knows the duration of {with_cost(op)}")
    return seconds


def check_effect(ops: Iterable[Op], costs: Sequence[OpCost]) -> None:
    """Raise InputError for a duration without an op."""
    names = dict.fromkeys(op.name for op in ops if op.name.startswith(CUSTOM))
    for cost in costs:
        if not any(cost_of(name, [cost]) is not None for name in names):
            called = ", ".join(name.removeprefix(CUSTOM) for name in names)
            has = f"it calls {called}" if called else "it calls none of its own"
            raise InputError(f'cost "{cost}" has no effect: the script calls no such op; {has}')


def _read(value: Any) -> Any:
    parts = (value,) if isinstance(value, str | OpCost) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(part if isinstance(part, OpCost) else parse_cost(part) for part in parts)


OpCosts = Annotated[
    tuple[OpCost, ...],
    BeforeValidator(_read),
    PlainSerializer(lambda costs: [str(cost) for cost in costs]),
]
"""The field `cost` of a configuration."""
