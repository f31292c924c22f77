"""Delays of emulated ranks that are drawn from a distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paracosm.errors import InputError
from paracosm.timing import Distribution, parse_distribution
from paracosm.units import parse_number

__all__ = ["RandomDelay", "parse_random_delay", "parse_skew"]


@dataclass(frozen=True)
class RandomDelay:
    """Seconds by which a rank is later; by which it is earlier where `sign` is -1.

    Attributes:
        text: as it was written.
        distribution: of the seconds.
        sign: 1 or -1.
    """

    text: str
    distribution: Distribution
    sign: int = 1

    def __str__(self) -> str:
        return self.text


def parse_random_delay(text: str) -> RandomDelay:
    """Return the delay that `text` describes: "50us", "lognormal(10ms, 0.5)".

    Raises:
        InputError: it cannot be read; a number without a unit; a recording, which has an order of
            its own and not a draw for each rank.
    """
    if _is_plain(text):
        raise InputError(f'"{text}" has no unit: write a duration as {text}ms')
    distribution = parse_distribution(text)
    try:
        distribution.from_uniform(np.array([0.5]))
    except TypeError:
        raise InputError(
            f'"{text}" is replayed in order, not drawn from: use empirical(...)'
        ) from None
    return RandomDelay(text, distribution)


def parse_skew(text: str) -> RandomDelay:
    """Return the skew that `text` describes, which may be "-50us".

    Raises:
        InputError: as `parse_random_delay`.
    """
    sign = -1 if text.strip().startswith("-") else 1
    delay = parse_random_delay(text.strip().removeprefix("-"))
    return RandomDelay(text, delay.distribution, sign)


def _is_plain(text: str) -> bool:
    try:
        return parse_number(text) != 0
    except InputError:
        return False
