"""Fields of configurations that are quantities: numbers in SI units, or texts with a unit. They are
written as texts with a unit, which parse back to the same numbers.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from paracosm.errors import InputError
from paracosm.units import (
    format_bandwidth,
    format_duration,
    format_power,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_number,
    parse_power,
    parse_size,
)


def _with_unit(parse: Callable[[Any], float], what: str, *units: str) -> Callable[[Any], float]:
    """Return `parse` without plain numbers in texts: `--bandwidth 25` does not mean 25 bytes/s.

    This is the one rule for all commands: a text that is a number has a unit, except for 0 and inf.
    A number (from Python, or of YAML) is in seconds, bytes, bytes/s or watts.
    """

    def read(value: Any) -> float:
        quantity = parse(value)
        if isinstance(value, str) and quantity and math.isfinite(quantity) and _is_plain(value):
            number = value.strip()
            examples = " or ".join(f"{number}{unit}" for unit in units)
            raise InputError(f'"{number}" has no unit: write a {what} as {examples}')
        return quantity

    return read


def _is_plain(text: str) -> bool:
    try:
        parse_number(text)
    except InputError:
        return False
    return True


def _exactly(write: Callable[..., str]) -> PlainSerializer:
    return PlainSerializer(lambda value: write(value, exact=True), return_type=str)


LONGEST = 1e15
"""Seconds of a duration: sums of some of them are finite, whatever the speed of a node."""


def limited_duration(value: Any) -> float:
    """Return the seconds that a number or a text says, if they are infinite or at most LONGEST."""
    seconds = parse_duration(value)
    if LONGEST < seconds < math.inf:
        raise InputError(f"a duration of at most {LONGEST:.0e} s, not {value}")
    return seconds


read_duration = _with_unit(limited_duration, "duration", "ms", "s")
"""Returns the seconds that a number says, or a text with a unit."""

Duration = Annotated[float, BeforeValidator(read_duration), _exactly(format_duration)]
"""Seconds."""

read_bandwidth = _with_unit(parse_bandwidth, "bandwidth", "Gbit/s")
"""Returns the bytes/s that a number says, or a text with a unit."""

Bandwidth = Annotated[float, BeforeValidator(read_bandwidth), _exactly(format_bandwidth)]
"""Bytes/s."""

read_size = _with_unit(parse_size, "size", "MB", "MiB")
"""Returns the bytes that a number says, or a text with a unit."""

Size = Annotated[float, BeforeValidator(read_size), _exactly(format_size)]
"""Bytes."""

read_power = _with_unit(parse_power, "power", "W")
"""Returns the watts that a number says, or a text with a unit."""

Watts = Annotated[float, BeforeValidator(read_power), _exactly(format_power)]
"""Watts."""

READERS = (read_duration, read_bandwidth, read_size, read_power)
"""Of texts that have a unit."""

Tokens = Annotated[
    float,
    BeforeValidator(lambda value: parse_number(value) if isinstance(value, str) else value),
    Field(gt=0, le=1e24, allow_inf_nan=False),
]
"""A number of tokens: 4e6."""
