"""Prices as people write them."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.price import Price, parse_price


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("2.5/h a worker", Price(2.5, "")),
        ("$2.5/h per worker", Price(2.5, "$")),
        ("2.5 EUR / h / worker", Price(2.5, "EUR")),
        ("0.5€/min a worker", Price(30.0, "€")),
    ],
)
def test_a_price_is_money_for_an_hour_of_a_worker(text: str, price: Price) -> None:
    assert parse_price(text) == price
    assert parse_price(str(price)) == price


def test_costs_by_hand() -> None:
    assert Price(2.5, "").of(8, 1800.0) == 10.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2.5", '"2.5" has no unit, for which time and of what: write "2.5/h a worker"'),
        ("2.5/h", '"2.5/h" has no unit: write "2.5/h a worker"'),
        ("2.5/parsec a worker", '"parsec" is no unit of time'),
        ("$2 EUR/h a worker", "two currencies"),
        ("0/h a worker", "above 0"),
        (f"{'9' * 400}/h a worker", "above 0 and finite"),
        ("cheap", 'cannot read "cheap" as a price: write "2.5/h a worker"'),
    ],
)
def test_what_cannot_be_a_price(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_price(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
