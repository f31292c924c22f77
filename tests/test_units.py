import decimal
import math
from fractions import Fraction
from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paracosm
from paracosm.errors import InputError
from paracosm.units import (
    format_bandwidth,
    format_between,
    format_duration,
    format_number,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_number,
    parse_size,
    parse_whole,
    real,
    whole,
)

PAIRS = [
    (parse_duration, format_duration),
    (parse_size, format_size),
    (parse_bandwidth, format_bandwidth),
]
quantities = st.floats(min_value=0, max_value=1e300, allow_subnormal=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20ms", 0.02),
        ("1.5 ms", 0.0015),
        ("0.3ms", 0.0003),
        ("3us", 3e-6),
        ("3 µs", 3e-6),
        ("3 \u03bcs", 3e-6),
        ("7ns", 7e-9),
        ("2 min", 120.0),
        ("1.5h", 5400.0),
        ("1 day", 86400.0),
        ("30 days", 2592000.0),
        ("1e-3 s", 0.001),
        (".5e2ms", 0.05),
        ("0.02", 0.02),
        ("inf", math.inf),
        (" +4s ", 4.0),
        (3, 3.0),
    ],
)
def test_durations_are_read_to_the_nearest_float(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1.0),
        ("25 MiB", 25 * 2**20),
        ("1.5kB", 1500.0),
        ("2TB", 2e12),
        ("8 bit", 1.0),
        ("4kbit", 500.0),
        ("1 Gbit", 1.25e8),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["10 Gbit/s", "10Gbit/s", "10Gbps", "1.25 GB/s", "1250000000", "10000 Mbit/s"]
)
def test_one_bandwidth_in_many_spellings(text):
    assert parse_bandwidth(text) == 1.25e9


def test_binary_bandwidth():
    assert parse_bandwidth("2 MiB/s") == 2**21


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_bandwidth, "10 GBs", ['bandwidth unit "GBs"', 'did you mean "GB/s"?']),
        (parse_bandwidth, "1 Gb/s", ['did you mean "Gbit/s"?']),
        (parse_size, "10 GBs", ['size unit "GBs"', 'did you mean "GB"?']),
        (parse_duration, "10 mss", ['did you mean "ms"?', '"10 mss"']),
        (parse_duration, "-1ms", ["0 or more", "-1ms"]),
        (parse_duration, -1, ["0 or more", "-1"]),
        (parse_duration, math.nan, ["NaN"]),
        (parse_duration, "nan", ["cannot read", '"nan"']),
        (parse_duration, "", ['cannot read ""', "ms"]),
        (parse_duration, "fast", ['cannot read "fast"']),
        (parse_duration, "1.2.3 s", ["unit"]),
        (parse_duration, True, ["not True"]),
        (parse_duration, None, ["not None"]),
        (parse_number, "3ms", ['unit ("ms")', "plain number"]),
        (parse_duration, "1e307 min", ["a duration is at most 1e308, not 1e307 min"]),
        (parse_duration, "9" * 400, ["a duration is at most 1e308"]),
        (parse_number, 10**400, ["a number is at most 1e308"]),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(parse, text, words):
    with pytest.raises(InputError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_negative_durations_where_allowed():
    assert parse_duration("-1.5ms", signed=True) == -0.0015
    assert parse_number("-3", signed=True) == -3.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_duration(0.02), "20 ms"),
        (format_duration(0.02, exact=True), "20ms"),
        (format_duration(0.0123456), "12.35 ms"),
        (format_duration(0.99999), "1 s"),
        (format_duration(0.0), "0 s"),
        (format_duration(1e-12), "0.001 ns"),
        (format_duration(math.inf), "inf"),
        (format_size(25 * 2**20, exact=True), "25MiB"),
        (format_size(25e6, exact=True), "25MB"),
        (format_size(1), "1 B"),
        (format_bandwidth(1.25e9), "10 Gbit/s"),
        (format_number(10.0), "10"),
        (format_number(0.1), "0.1"),
    ],
)
def test_formats(text, expected):
    assert text == expected


@given(quantities)
def test_exact_form_parses_back_equal(value):
    for parse, write in PAIRS:
        assert parse(write(value, exact=True)) == value
    assert parse_number(format_number(value)) == value


@given(quantities)
def test_display_form_parses_back_to_four_digits(value):
    for parse, write in PAIRS:
        assert parse(write(value)) == pytest.approx(value, rel=5.1e-4, abs=1e-320)


def test_the_callers_decimal_context_rounds_nothing() -> None:
    with decimal.localcontext() as context:
        context.prec = 1
        assert format_duration(0.0123456, exact=True) == "12.3456ms"


@given(st.integers(0, 2**64), st.integers(0, 3))
def test_whole_numbers_are_read_up_to_the_most(number: int, zeros: int) -> None:
    text = "0" * zeros + str(number)
    assert parse_whole(text, number) == number
    assert parse_whole(text, number - 1) is None


@pytest.mark.parametrize("text", ["", " ", "-1", "+1", "1.0", "1e3", "ten", "9" * 5000])
def test_what_is_no_whole_number(text: str) -> None:
    assert parse_whole(text) is None


@pytest.mark.parametrize("unit", ["ns", "ms", "s"])
def test_time_spans_of_numpy_are_no_numbers(unit):
    span = np.timedelta64(5, unit)
    assert isnan(real(span))
    assert whole(span) is None
    with pytest.raises(InputError, match="a duration is a number or a string"):
        parse_duration(span)
    with pytest.raises(InputError, match="a time span of NumPy is no argument"):
        paracosm.train(compute=span, timing_only=True, workers=2, updates=2)


def test_whole_numbers_of_any_type():
    assert [whole(value) for value in (3, np.uint8(3), 3.0, Fraction(3))] == [3] * 4
    assert [whole(value) for value in (3.5, "3", True, None, inf, nan)] == [None] * 6


def three_digits(seconds: float) -> str:
    return format_duration(float(f"{seconds:.3g}"))


@pytest.mark.parametrize("write", [format_duration, three_digits])
@given(
    value=st.floats(1e-9, 1e9),
    below=st.one_of(st.just(0.0), st.floats(0, 1e-3), st.floats(0, 1)),
    above=st.one_of(st.just(0.0), st.floats(0, 1e-3), st.floats(0, 10)),
    rounding=st.sampled_from([0.0, 1e-16, -1e-16, 4e-16]),
)
def test_an_interval_as_shown_holds_its_value(
    write: Any, value: float, below: float, above: float, rounding: float
) -> None:
    """Whatever arithmetic has made of the bounds, in the last bits of a number."""
    low, high = value * (1 - below + rounding), value * (1 + above + rounding)
    shown, between = format_between(low, value, high, write)
    least, most = between.split(" to ")
    assert parse_duration(least) <= parse_duration(shown) <= parse_duration(most)


def test_values_and_intervals_by_hand() -> None:
    assert format_between(0.0369, 0.041, 0.0451, format_duration) == ("41 ms", "36.9 ms to 45.1 ms")
    # 0.30000000000000004 is exp(log(0.3)), above the median.
    assert format_between(0.30000000000000004, 0.3, 0.3, repr) == ("0.3", "0.3 to 0.3")
    assert format_between(0.9996, 0.99996, 1.2, three_digits) == ("1 s", "1 s to 1.2 s")
