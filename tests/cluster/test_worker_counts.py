"""Numbers of workers as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.worker_counts import MOST, parse_workers
from paracosm.errors import InputError


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (16, (16,)),
        ("16", (16,)),
        ("1..5", (1, 2, 3, 4, 5)),
        ("1,2,4,8..64", (1, 2, 4, 8, 16, 32, 64)),
        ("1,2..16", (1, 2, 4, 8, 16)),
        ("1,4..256", (1, 4, 16, 64, 256)),
        ("16,24..48", (16, 24, 32, 40, 48)),
        ("1,2,4..10", (1, 2, 4, 8, 10)),  # the last number is always there
        ("3,7..12", (3, 7, 11, 12)),
        ("1, 2 .. 4, 10", (1, 2, 4, 10)),
        ([1, 2, "4..16"], (1, 2, 4, 8, 16)),
        ((1, 2, 4), (1, 2, 4)),
    ],
)
def test_a_range_goes_on_as_the_numbers_before_it_say(given: Any, numbers: Any) -> None:
    assert parse_workers(given) == numbers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", 'cannot read ""'),
        ("1,2,x", 'cannot read "x" as numbers of workers: write 16, or 1,2,4..64, or 1..16'),
        ("0", "a job has at least 1 worker, not 0"),
        ("8..4", '"8..4" is not a range'),
        ("8,4", "4 comes after 8"),
        ("4,4", "4 comes after 4"),
        ("1..4,3", "3 comes after 4"),
        ("1..1000000", f"more than {MOST:,} numbers"),
        (True, "a whole number, not True"),
        (2.5, "a whole number, not 2.5"),
    ],
)
def test_what_is_no_number_of_workers_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_workers(given)
    assert message in str(refused.value)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 1500))
def test_ranges_grow_and_end_where_they_say(first: int, step: int, beyond: int) -> None:
    last = first + step + beyond
    numbers = parse_workers(f"{first},{first + step}..{last}")
    assert numbers[:2] == (first, first + step)
    assert numbers[-1] == last
    assert list(numbers) == sorted(set(numbers))
