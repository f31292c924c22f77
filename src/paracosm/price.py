"""What a worker costs: "2.5/h a worker"."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, InstanceOf, PlainSerializer

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


def _of_device(value: Any) -> Any:
    if value is None or isinstance(value, Price):
        return value
    text = str(value)
    return parse_price(text if "worker" in text or "/" not in text else f"{text} a worker")


DevicePrice = Annotated[
    InstanceOf[Price] | None,
    BeforeValidator(_of_device),
    PlainSerializer(lambda v: None if v is None else str(v), return_type=str | None),
]
"""A field whose text may leave out of what: "2.2/h", where workers are devices."""


A_PRICE_EACH = 'with several, a price for each: "h100-sxm: 2.2/h, l4: 0.7/h"'


def parse_prices(value: Any) -> dict[str, Price]:
    """Read "2.2/h", or by hardware "h100-sxm: 2.2/h, l4: 0.7/h", also as a mapping.

    Returns the price of a device by the name of the hardware, "" where no name stands before it.

    Raises:
        InputError: a text that is no price; hardware that is named twice.
    """
    if isinstance(value, dict):
        pairs = [(str(name), price) for name, price in value.items()]
    else:
        parts = [part.rpartition(":") for part in str(value).split(",")]
        pairs = [(name.strip(), price.strip()) for name, _, price in parts]
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{name} is given twice: leave one out" if name else f"{value}: {A_PRICE_EACH}"
            )
    return {name: _of_device(price) for name, price in pairs}


def check_prices(prices: Mapping[str, Price], hardware: Sequence[str]) -> None:
    """Raise InputError where prices are not those of so much hardware, each once."""
    if "" in prices and (len(hardware) > 1 or len(prices) > 1):
        raise InputError(f"price: {A_PRICE_EACH}")
    if len(currencies := {price.currency for price in prices.values()}) > 1:
        raise InputError(f"price: in one currency, not {' and '.join(sorted(currencies))}")
    for name in hardware:
        if "" not in prices and name not in prices:
            raise InputError(f'price: none for {name}: add "{name}: 2.2/h"')
    for name in prices:
        if name and name not in hardware:
            raise InputError(f"price: {name} is not compared: --hardware has {', '.join(hardware)}")


def written_prices(prices: Mapping[str, Price] | None) -> str | None:
    """Return prices as `parse_prices` reads them."""
    if prices is None:
        return None
    return ", ".join(f"{name}: {price}" if name else str(price) for name, price in prices.items())


DevicePrices = Annotated[
    InstanceOf[dict[str, Price]] | None,
    BeforeValidator(lambda value: None if value is None else parse_prices(value)),
    PlainSerializer(written_prices, return_type=str | None),
]
"""A field of prices by hardware, which `check_prices` checks."""


class Priced(Protocol):
    """A summary with costs."""

    @property
    def price(self) -> str | None: ...

    @property
    def currency(self) -> str: ...


def cost_text(summary: Priced, cost: float) -> str:
    """Return a cost with its currency, or in worker-hours where there is no price."""
    digits = f"{cost:.3g}" if cost < 999.5 else f"{cost:,.0f}"
    if summary.price is None:
        return f"{digits} worker-hours"
    if not summary.currency:
        return digits
    is_sign = not summary.currency.isalpha()
    return f"{summary.currency}{digits}" if is_sign else f"{digits} {summary.currency}"
