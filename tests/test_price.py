"""Prices as people write them."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.price import Price, check_prices, parse_price, parse_prices, written_prices


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


def test_prices_are_by_hardware_and_each_is_needed_once() -> None:
    prices = parse_prices("h100-sxm: 2.5 USD/h, l4: 0.7 USD/h")
    assert prices == {"h100-sxm": Price(2.5, "USD"), "l4": Price(0.7, "USD")}
    assert parse_prices(written_prices(prices)) == prices
    assert parse_prices("2.2/h") == {"": Price(2.2, "")}
    check_prices(prices, ["l4", "h100-sxm"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2/h", "with several, a price for each"),
        ("2/h, 1/h", "with several, a price for each"),
        ("h100-sxm: 2/h, l4: 1 USD/h", "in one currency"),
        ("h100-sxm: 2/h", 'none for l4: add "l4: 2.2/h"'),
        ("h100-sxm: 2/h, l4: 1/h, t4: 1/h", "t4 is not compared: --hardware has h100-sxm, l4"),
        ("l4: 2/h, l4: 1/h", "l4 is given twice"),
        ("h100-sxm: 2, l4: 1/h", '"2" has no unit'),
    ],
)
def test_prices_that_do_not_fit_the_hardware(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_prices(parse_prices(text), ["h100-sxm", "l4"])
    assert message in str(caught.value)
