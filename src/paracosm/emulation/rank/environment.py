"""Numbers in a rank's environment, which launchers, users and scripts set."""

from __future__ import annotations

from paracosm.errors import InputError
from paracosm.units import parse_whole


def whole_number(variable: str, text: str | None, largest: int = 2**31 - 1) -> int:
    """Return the number from 0 to `largest` that a variable has; None is one that is not set.

    Raises:
        InputError: it is not set, no whole number, or too large.
    """
    if text is None:
        raise InputError(f"{variable}: not set: a whole number from 0 to {largest:,}")
    number = parse_whole(text.strip(), largest)
    if number is None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise InputError(f'{variable}: a whole number from 0 to {largest:,}, not "{shown}"')
    return number


_SHOWN = 40  # letters of what is not a number
