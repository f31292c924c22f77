"""What a worker costs: "2.5/h a worker"."""

import re
from dataclasses import dataclass
from math import inf

from paracosm.errors import InputError
from paracosm.units import format_number, parse_duration

EXAMPLE = 'write "2.5/h a worker", or "2.5 EUR/h a worker"'

_PRICE = re.compile(
    r"(?P<before>[^\d\s.,/+-]*)\s*(?P<amount>\d+(?:\.\d*)?|\.\d+)\s*(?P<after>[^\d\s./]*)"
    r"\s*(?:/|per)\s*(?P<time>\w+)\s*(?:,|a|per|/)\s*worker"
)
_PLAIN = re.compile(r"[^\d\s.,/+-]*\s*(?P<amount>\d+(?:\.\d*)?|\.\d+)\s*(?P<rest>.*)")


@dataclass(frozen=True)
class Price:
    """Money for an hour of a worker."""

    amount: float
    currency: str  # as it is written, empty where none is

    def of(self, workers: int, seconds: float) -> float:
        """Return the cost of workers for so many seconds each."""
        return self.amount * workers * seconds / 3600

    def __str__(self) -> str:
        currency = f" {self.currency}" if self.currency else ""
        return f"{format_number(self.amount)}{currency}/h a worker"


WORKER_HOURS = Price(1.0, "")
"""The unit of costs without a price."""


def parse_price(text: str) -> Price:
    """Read "2.5/h a worker", "$2.5/h per worker", "0.04 EUR/min a worker"."""
    match = _PRICE.fullmatch(text.strip())
    if match is None:
        plain = _PLAIN.fullmatch(text.strip())
        if plain is None:
            raise InputError(f'cannot read "{text}" as a price: {EXAMPLE}')
        missing = "" if plain["rest"] else ", for which time and of what"
        raise InputError(f'"{text}" has no unit{missing}: write "{plain["amount"]}/h a worker"')
    if match["before"] and match["after"]:
        raise InputError(f'"{text}" has two currencies: {EXAMPLE}')
    try:
        seconds = parse_duration(f"1{match['time']}")
    except InputError:
        raise InputError(f'"{text}": "{match["time"]}" is no unit of time: {EXAMPLE}') from None
    amount = float(match["amount"]) * 3600 / seconds
    if not 0 < amount < inf:
        raise InputError(f'"{text}": a price is above 0 and finite, or left out')
    return Price(amount, match["before"] or match["after"])
