"""Dependencies as arrays, the other way round, and in order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paracosm.profiling.jobs.job_profile import dependencies_of, dependents_of, in_order


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Return for each op those that it waits for; some of them in a circle."""
    ops = draw(st.integers(0, 12))
    some = st.lists(st.integers(0, max(ops - 1, 0)), max_size=3, unique=True)
    return [draw(some) for _ in range(ops)]


def order_of(waits: list[list[int]]) -> list[int]:
    first, dependencies = dependencies_of(waits)
    return in_order(np.diff(first), *dependents_of(first, dependencies))


@given(graphs())
def test_those_that_wait_are_found_by_what_they_wait_for(waits: list[list[int]]) -> None:
    first, dependencies = dependencies_of(waits)
    assert [dependencies[a:b].tolist() for a, b in pairwise(first)] == waits
    begin, dependents = dependents_of(first, dependencies)
    for op in range(len(waits)):
        found = dependents[begin[op] : begin[op + 1]].tolist()
        assert found == [other for other, before in enumerate(waits) if op in before]


@given(graphs())
def test_every_op_that_can_begin_stands_behind_what_it_waits_for(waits: list[list[int]]) -> None:
    order = order_of(waits)
    for place, op in enumerate(order):
        assert set(waits[op]) <= set(order[:place])
    # Each of the others waits for one of them: none could be next.
    left = set(range(len(waits))) - set(order)
    assert all(left & set(waits[op]) for op in left)
    assert len(set(order)) == len(order)


def test_an_order_by_hand() -> None:
    assert order_of([[1, 2], [2], [], [3], [3]]) == [2, 1, 0]
