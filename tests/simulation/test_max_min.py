"""Flows over shared links, by hand. Sizes are bytes, bandwidths bytes/ps, times ps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_literal_events import max_min_rates
from task_graphs import Row, task_graph

from paracosm.simulation.events import replay_tasks


def ends(rows: list[Row], routes: list[list[int]], bandwidth: list[float]) -> list[int]:
    return replay_tasks(task_graph(rows, [], routes, bandwidth)).end.tolist()


def test_a_parking_lot() -> None:
    """A long flow through three links, a short one over each.

    Bandwidths 2, 4 and 3: the first link is narrowest, and gives 1 to the long flow and to the
    short one over it; then the second gives its short one 3, the third 2.
    """
    bandwidth = {0: Fraction(2), 1: Fraction(4), 2: Fraction(3)}
    flows = {0: [0, 1, 2], 1: [0], 2: [1], 3: [2]}
    assert max_min_rates(flows, bandwidth) == {0: 1, 1: 1, 2: 3, 3: 2}
    rows = [Row(0, route=0, size=40), *(Row(0, route=link, size=30) for link in (1, 2, 3))]
    # 30 bytes at 3 end at 10, at 2 at 15, at 1 at 30; then the long flow has 10 bytes left, and 2.
    assert ends(rows, [[0, 1, 2], [0], [1], [2]], [2, 4, 3]) == [35, 30, 10, 15]


def test_what_a_bottleneck_elsewhere_leaves_goes_to_the_others() -> None:
    """Two flows share a link of 10; one of them is held to 2 by another link: the other has 8."""
    rows = [Row(0, route=0, size=20), Row(0, route=1, size=80)]
    assert ends(rows, [[0, 1], [0]], [10, 2]) == [10, 10]


def test_a_link_shared_by_flows_that_come_and_go() -> None:
    """Bandwidth 6. a (60 bytes) from 0, b (30) from 5, c (12) from 8.

    Until 5, a has had 30; until 8, a and b 9 each; then 2 each: c is done after 6 more, at 14. Now
    a has 30 - 9 - 12 = 9 left, b likewise: at 3 each they end at 17.
    """
    rows = [Row(0, route=0, size=60), Row(5, route=0, size=30), Row(8, route=0, size=12)]
    assert ends(rows, [[0]], [6]) == [17, 17, 14]


def test_an_end_is_the_first_whole_picosecond() -> None:
    """Three flows of 1 byte share 1 byte/ps: 3 ps. One of 10 bytes at 3 bytes/ps: 3.33 ps."""
    assert ends([Row(0, route=0, size=1)] * 3, [[0]], [1]) == [3, 3, 3]
    assert ends([Row(0, route=0, size=10)], [[0]], [3]) == [4]


def test_latency_passes_before_the_first_byte() -> None:
    """The second flow has the link to itself: the first one's latency takes nothing from it."""
    rows = [Row(10, route=0, size=20), Row(0, route=0, size=20)]
    assert ends(rows, [[0]], [2]) == [20, 10]


def test_no_bytes_and_endless_bandwidth_take_no_time() -> None:
    rows = [Row(3, route=0, size=0), Row(4, route=1, size=1e9), Row(5, route=2, size=10)]
    rows.append(Row(6, route=3, size=1e9))
    assert ends(rows, [[0], [1], [0, 1], []], [2, math.inf]) == [3, 4, 10, 6]


def test_a_flow_holds_its_resource_for_latency_and_bytes() -> None:
    rows = [Row(1, 0, route=0, size=8), Row(1, 0, route=0, size=4), Row(2, 0)]
    times = replay_tasks(task_graph(rows, ["in order"], [[0]], [2]))
    assert times.arrive.tolist() == [0, 5, 8]
    assert times.end.tolist() == [5, 8, 10]


def test_who_begins_as_another_ends_finds_the_same_rate() -> None:
    """One flow after the other over one link, and one that goes on: 2 at a time throughout."""
    rows = [Row(0, route=0, size=5), Row(0, after=[0], route=0, size=5), Row(0, route=0, size=10)]
    assert ends(rows, [[0]], [1]) == [10, 20, 20]


def test_routes_over_the_same_links_are_one() -> None:
    rows = [Row(0, route=route, size=6) for route in range(3)]
    assert ends(rows, [[0, 1], [1, 0], [0]], [3, 2]) == [6, 6, 6]


@pytest.mark.parametrize("n", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_flows_at_once(n: int) -> None:
    """Sizes 1, 2, ... over 1 byte/ps: the k-th ends when all have had k bytes or all of theirs."""
    got = ends([Row(0, route=0, size=size) for size in range(1, n + 1)], [[0]], [1])
    size = np.arange(1, n + 1)
    assert got == (np.cumsum(size) + size * (n - size)).tolist()


def test_slow_links_and_hours() -> None:
    """One byte per second for 10 hours; and then an end that is beyond the clock."""
    row = Row(0, route=0, size=36_000)
    assert ends([row], [[0]], [1e-12]) == [36_000 * 10**12]
    with pytest.raises(ValueError, match="106 days"):
        ends([Row(0, route=0, size=1e7)], [[0]], [1e-12])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40)), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_one_link_is_never_idle_while_there_is_work(
    flows: list[tuple[int, int]], bandwidth: int
) -> None:
    """Whoever shares it, the link works through the bytes as a queue would; ends are rounded up."""
    rows = [Row(at, route=0, size=size) for at, size in flows]
    busy = Fraction(0)
    for at, size in sorted(flows):
        busy = max(busy, Fraction(at)) + Fraction(size, bandwidth)
    last = max(ends(rows, [[0]], [bandwidth]))
    assert busy - Fraction(1, 100) <= last <= busy + len(flows)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.sets(st.integers(0, 4), min_size=1, max_size=3).map(sorted), min_size=1, max_size=9
    ),
    st.lists(st.integers(1, 9), min_size=5, max_size=5),
)
def test_every_flow_has_a_bottleneck(routes: list[list[int]], bandwidth: list[int]) -> None:
    """Rates are max-min fair if and only if each flow has a full link where none is faster.

    Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2.
    """
    links = {link: Fraction(value) for link, value in enumerate(bandwidth)}
    rates = max_min_rates(dict(enumerate(routes)), links)
    for flow, route in enumerate(routes):
        bottlenecks = [
            link
            for link in route
            if sum(rates[other] for other in rates if link in routes[other]) == links[link]
            and rates[flow] == max(rates[other] for other in rates if link in routes[other])
        ]
        assert bottlenecks
    # The compiled rates show in the first end: bytes and all rates are whole multiples of 1/lcm.
    scale = math.lcm(*(rate.denominator for rate in rates.values()))
    size = float(math.lcm(*(int(rate * scale) for rate in rates.values())))
    got = ends([Row(0, route=flow, size=size) for flow in rates], routes, bandwidth)
    fastest = max(rates.values())
    assert min(got) == math.ceil(Fraction(size) / fastest)
