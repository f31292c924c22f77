"""Quantities as people write them ("10 Gbit/s", "1.5 ms", "25 MiB") to floats, and back.

Inside Paracosm a duration is in seconds, a size in bytes, a bandwidth in bytes/s, always floats.
Unit strings appear only in files, flags and displays. A decimal prefix is read by shifting the
decimal point, never by multiplying: `parse_duration("0.3ms") == 0.0003`, and the exact form of any
float parses back to that float.
"""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from numbers import Integral, Real
from typing import TypeGuard

from paracosm.errors import InputError, unknown

# A unit is (power of ten, factor): 10^power * factor in the SI base unit. The factor of a decimal
# unit is 1 or a power of two (bits, KiB), so that only minutes and more are rounded.
Unit = tuple[int, float]

_DURATIONS: dict[str, Unit] = {
    "ns": (-9, 1.0),
    "us": (-6, 1.0),
    "µs": (-6, 1.0),  # micro sign
    "μs": (-6, 1.0),  # Greek mu
    "ms": (-3, 1.0),
    "s": (0, 1.0),
    "min": (0, 60.0),
    "h": (0, 3600.0),
    "day": (0, 86400.0),
    "days": (0, 86400.0),
}
_BYTES: dict[str, Unit] = {"B": (0, 1.0), "kB": (3, 1.0), "MB": (6, 1.0)}
_BYTES |= {"GB": (9, 1.0), "TB": (12, 1.0)}
_BINARY: dict[str, Unit] = {
    prefix + "iB": (0, 1024.0**power) for power, prefix in enumerate("KMGT", start=1)
}
_BITS: dict[str, Unit] = {
    prefix + "bit": (3 * power, 0.125) for power, prefix in enumerate(["", "k", "M", "G", "T"])
}
_SIZES = _BYTES | _BINARY | _BITS
_BANDWIDTHS = {f"{name}/s": unit for name, unit in _SIZES.items()}
_BANDWIDTHS |= {f"{name.removesuffix('it')}ps": unit for name, unit in _BITS.items()}

_WATTS: dict[str, Unit] = {"mW": (-3, 1.0), "W": (0, 1.0), "kW": (3, 1.0), "MW": (6, 1.0)}
_JOULES: dict[str, Unit] = {
    f"{prefix}J": (3 * power, 1.0) for power, prefix in enumerate(["m", "", "k", "M", "G", "T"], -1)
}

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<digits>\d+(?:\.\d*)?|\.\d+)(?:[eE](?P<power>[+-]?\d{1,4}))?|(?P<inf>inf)\b)"
    r"\s*(?P<unit>.*)"
)


def parse_duration(value: str | float, *, signed: bool = False) -> float:
    """Return a duration in seconds: "20ms", "1.5 h", "3e-4 s", "inf", or a number of seconds.

    Raises:
        InputError: one line that names the unknown unit and the nearest valid one, or the negative
            (unless `signed`), NaN, empty or unreadable value.
    """
    return _parse(value, "duration", _DURATIONS, signed)


def parse_size(value: str | float) -> float:
    """Return a size in bytes: "25 MiB", "1.5GB", "8 kbit", or a number of bytes.

    Raises:
        InputError: as `parse_duration`.
    """
    return _parse(value, "size", _SIZES, signed=False)


def parse_bandwidth(value: str | float) -> float:
    """Return a bandwidth in bytes/s: "10 Gbit/s", "10Gbps", "1.25 GB/s", or a number of bytes/s.

    Raises:
        InputError: as `parse_duration`.
    """
    return _parse(value, "bandwidth", _BANDWIDTHS, signed=False)


def parse_power(value: str | float) -> float:
    """Return a power in watts: "250 W", "1.2kW", or a number of watts.

    Raises:
        InputError: as `parse_duration`.
    """
    return _parse(value, "power", _WATTS, signed=False)


def parse_number(value: str | float, *, signed: bool = False) -> float:
    """Return a number without a unit: "0.1", "1e-3", or a number.

    Raises:
        InputError: as `parse_duration`; any unit is refused.
    """
    return _parse(value, "number", {}, signed)


def real(value: object) -> float:
    """Return a number of any type as a float; NaN for what is none, or too large for one.

    Numbers of NumPy's small types are added and divided in those types, which round and overflow.
    """
    if type(value) is float:  # as in a million nodes: a tenth of the time
        return value
    if not _is_number(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def whole(value: object) -> int | None:
    """Return a whole number of any type as an int; None for what is none."""
    if not _is_number(value):
        return None
    if isinstance(value, Integral):
        return int(value)
    number = real(value)
    return int(number) if number.is_integer() else None


WIDEST = 2**64 - 1
"""The largest whole number that is read from outside, in a file, a flag or an argument."""


def is_too_wide(number: int) -> bool:
    """Whether a whole number has more than 64 bits, and so no type in arrays and files."""
    return not -(2**63) <= number <= WIDEST


def _is_number(value: object) -> TypeGuard[Real]:
    """Whether a value is a real number; to Python, truth values and NumPy's time spans are."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return getattr(getattr(value, "dtype", None), "kind", "") != "m"


def parse_whole(text: str, most: int = 2**63 - 1) -> int | None:
    """Return a number that is written in digits alone; None for all else, or above `most`."""
    digits = text.lstrip("0") or text[-1:]
    # Python refuses to convert thousands of digits, with an error of its own.
    if not digits.isdecimal() or len(digits) > len(str(most)) or int(digits) > most:
        return None
    return int(digits)


def is_unit(text: str) -> bool:
    """Whether a text is the name of a unit of any quantity: ms, Gbit/s, MB."""
    return any(text in units for units in (_DURATIONS, _SIZES, _BANDWIDTHS, _WATTS))


def in_digits(text: str) -> str | None:
    """Return the digits of a whole number from 0 on that is written as 1e3, 1,000 or 1000.0; None
    for all else."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return None
    is_short = 0 <= number <= WIDEST and number.is_integer()
    return str(int(number)) if is_short and not text.isdecimal() else None


def format_duration(seconds: float, *, exact: bool = False) -> str:
    """Return "1.5 ms", to four digits; with `exact` the form for files, which parses back equal."""
    return _format(seconds, {name: _DURATIONS[name] for name in ("s", "ms", "us", "ns")}, exact)


def format_size(size: float, *, exact: bool = False) -> str:
    """Return "25 MB", to four digits; with `exact` the form for files, which parses back equal."""
    text = _format(size, _BYTES, exact)
    if not exact:
        return text
    binary = [
        f"{_plain(size / factor)}{name}" for name, (_, factor) in _BINARY.items() if size >= factor
    ]
    return min([text, *binary], key=len)


def format_bandwidth(bandwidth: float, *, exact: bool = False) -> str:
    """Return "10 Gbit/s", to four digits; with `exact` the form for files, which parses back equal.

    Bits/s are shown, as usual for networks; `bandwidth` is in bytes/s as everywhere.
    """
    return _format(bandwidth * 8, {f"{name}/s": (p, 1.0) for name, (p, _) in _BITS.items()}, exact)


def format_power(watts: float, *, exact: bool = False) -> str:
    """Return "250 W", to four digits; with `exact` the form for files, which parses back equal."""
    return _format(watts, _WATTS, exact)


def format_energy(joules: float) -> str:
    """Return "1.2 kJ", to four digits."""
    return _format(joules, _JOULES, False)


def format_between(
    low: float, value: float, high: float, write: Callable[[float], str]
) -> tuple[str, str]:
    """Return a value and what it is between as texts: ("41 s", "36.9 s to 45.1 s").

    All are rounded by `write`, which must keep the order of numbers. A bound that arithmetic has
    put on the wrong side of the value takes its place: what is shown holds the value.
    """
    return write(value), f"{write(min(low, value))} to {write(max(value, high))}"


def format_number(value: float) -> str:
    """Return the shortest digits that parse back to the same float: "0.1", "10"."""
    return _plain(value) if math.isfinite(value) else str(value)


def _parse(value: object, kind: str, units: Mapping[str, Unit], signed: bool) -> float:
    if isinstance(value, str):
        number = _parse_text(value, kind, units)
    elif not _is_number(value):
        raise InputError(f"a {kind} is a number or a string, not {value!r}")
    else:
        try:
            number = float(value)
        except OverflowError:
            raise InputError(f"a {kind} is at most 1e308, not a number as large as that") from None
    if math.isnan(number):
        raise InputError(f"a {kind} must be a number, not NaN")
    if number < 0 and not signed:
        raise InputError(f"a {kind} must be 0 or more, not {str(value).strip()}")
    return number


def _parse_text(text: str, kind: str, units: Mapping[str, Unit]) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise InputError(f'cannot read "{text}" as a {kind}: {_example(kind, units)}')
    unit = match["unit"].strip()
    if unit and not units:
        short = _THOUSANDS.get(unit)
        written = f": write {match['digits']}{short}" if short and not match["power"] else ""
        raise InputError(
            f'"{text}" has a unit ("{unit}"), but a plain number is expected here{written}'
        )
    if unit == "m" and units is _DURATIONS:
        digits = match["digits"]
        raise InputError(f'"{text}" is minutes or milliseconds: write {digits}min or {digits}ms')
    if unit and unit not in units:
        raise InputError(f'{unknown(f"{kind} unit", unit, units)} (in "{text}")')
    power, factor = units[unit] if unit else (0, 1.0)
    if match["inf"]:
        return float(match["sign"] + "inf")
    shifted = int(match["power"] or 0) + power
    number = float(f"{match['sign']}{match['digits']}e{shifted}") * factor
    if math.isinf(number):
        raise InputError(f"a {kind} is at most 1e308, not {text}")
    return number


_THOUSANDS = {"k": "e3", "K": "e3", "M": "e6", "B": "e9", "G": "e9", "T": "e12"}
"""What is written behind numbers of tokens and the like, and what it means."""


def _example(kind: str, units: Mapping[str, Unit]) -> str:
    if not units:
        return 'write a number, such as "0.1"'
    example = {"duration": "20ms", "bandwidth": "10Gbit/s", "power": "250W"}.get(kind, "10MB")
    return f'write a number and a unit, such as "{example}"'


def _format(value: float, units: Mapping[str, Unit], exact: bool) -> str:
    """Write `value` in the largest of the decimal `units` that makes it 1 or more."""
    if not math.isfinite(value):
        return str(value)
    blank = "" if exact else " "
    if not exact:
        value = float(f"{value:.4g}")  # first, so that 999.96 becomes 1 k and not 1000
    ordered = sorted(units.items(), key=lambda item: -item[1][0])
    base = next(name for name, (power, _) in ordered if power == 0)
    fitting = (name for name, (power, _) in ordered if abs(value) >= 10.0**power)
    name = next(fitting, ordered[-1][0]) if value else base
    return f"{_plain(value, -units[name][0])}{blank}{name}"


def _plain(value: float, shift: int = 0) -> str:
    """Write `value` * 10^`shift` with the shortest digits that give back the same float."""
    digits = _EXACT.normalize(_EXACT.scaleb(Decimal(repr(value)), shift))
    return f"{digits:f}" if -6 <= digits.adjusted() <= 15 else f"{digits:e}"


_EXACT = Context(prec=40)  # the caller's own may round to fewer digits than a float has
