"""Delays of emulated ranks that are drawn from a distribution."""

from __future__ import annotations

import numpy as np

from paracosm.errors import InputError
from paracosm.timing import Distribution, parse_distribution
from paracosm.units import parse_number

__all__ = ["parse_random_delay"]


def parse_random_delay(text: str) -> Distribution:
    """Return the distribution that `text` describes: "50us", "lognormal(10ms, 0.5)".

    Raises:
        InputError: it cannot be read; a number without a unit; a recording, which has an order of
            its own and not a draw for each rank.
    """
    if _is_plain(text):
        raise InputError(f"{text} of what? write a duration with its unit, such as {text}ms")
    distribution = parse_distribution(text)
    try:
        distribution.from_uniform(np.array([0.5]))
    except TypeError:
        raise InputError(
            f'"{text}" is replayed in order, not drawn from: use empirical(...)'
        ) from None
    return distribution


def _is_plain(text: str) -> bool:
    try:
        return parse_number(text) != 0
    except InputError:
        return False
