"""Reductions, gathers, scatters and barriers: by hand, and against moving the messages."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import hierarchical, ring, switch
from paracosm.cluster.collectives import (
    algorithms_of,
    collective_time,
    collective_times,
    dissemination_barrier,
    linear_gather,
    linear_scatter,
    ring_reduce,
    ring_reduce_scatter,
    tree_gather,
    tree_reduce,
    tree_scatter,
)
from paracosm.cluster.link import Link
from paracosm.errors import InputError

# 1 s to start a message, 100 bytes/s
LINK = Link(bandwidth=100.0, latency=1.0, pipelined=False)
PIPELINED = dataclasses.replace(LINK, overhead=0.5, pipelined=True)
HALF = dataclasses.replace(LINK, duplex="half")
SIZE = 800.0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (tree_reduce(8, SIZE, LINK), 3 * (1 + 8)),
        (tree_scatter(8, SIZE, LINK), (1 + 4) + (1 + 2) + (1 + 1)),
        (tree_scatter(5, SIZE, LINK), (1 + 1.6) + (1 + 3.2) + (1 + 1.6)),  # 1, 2 and 1 shares
        (tree_gather(8, SIZE, LINK), (1 + 4) + (1 + 2) + (1 + 1)),
        (linear_scatter(SIZE, [LINK] * 3), 3 * (1 + 2)),
        (linear_gather(SIZE, [PIPELINED] * 3), 3 * (0.5 + 2) + 1),  # latency passes once
        (ring_reduce(4, SIZE, LINK, [LINK] * 3), 3 * (1 + 2) + 3 * (1 + 2)),
        (dissemination_barrier(8, LINK), 3 * 1),
        (dissemination_barrier(5, HALF), 3 * 2),
        (dissemination_barrier(1, LINK), 0),
        (linear_scatter(SIZE, []), 0),
    ],
)
def test_by_hand(seconds: float, expected: float) -> None:
    assert seconds == pytest.approx(expected, rel=1e-15)


def scatter_step_by_step(ranks: int, size: float, link: Link) -> float:
    """Hand shares down a binomial tree: who holds the shares of `count` ranks gives half away.

    Returns when the last rank is done.
    """
    share = size / ranks

    def hold(count: int, since: float) -> float:
        free, last = since, since
        while count > 1:
            distance = 1 << ((count - 1).bit_length() - 1)
            given_away = count - distance
            free += link.transfer_time(share * given_away)
            last = max(last, hold(given_away, free))
            count = distance
        return max(last, free)

    return hold(ranks, 0.0)


@given(ranks=st.integers(1, 70), size=st.floats(0, 1e9))
def test_tree_scatter_against_moving_the_shares(ranks: int, size: float) -> None:
    assert tree_scatter(ranks, size, LINK) == pytest.approx(
        scatter_step_by_step(ranks, size, LINK), rel=1e-12
    )


@given(st.integers(2, 200))
def test_after_a_barrier_everybody_has_heard_from_everybody(ranks: int) -> None:
    heard = [{rank} for rank in range(ranks)]
    steps = 0
    while any(len(each) < ranks for each in heard):
        heard = [heard[rank] | heard[(rank - (1 << steps)) % ranks] for rank in range(ranks)]
        steps += 1
    assert dissemination_barrier(ranks, Link.constant(1.0)) == steps


def machines():
    """Three machines of four workers: 1 s and 100 bytes/s within, 3 s and 10 bytes/s between."""
    return hierarchical(12, 4, LINK, Link(bandwidth=10.0, latency=3.0, pipelined=False))


@pytest.mark.parametrize(
    ("workers", "collective", "algorithm", "seconds"),
    [
        ((0, 1, 2, 3), "reduce", "tree", 2 * (1 + 8)),
        ((2, 3, 4, 5), "reduce", "ring", 3 * (3 + 20) + (1 + 2) + 2 * (3 + 20)),
        ((0, 1, 2, 4), "gather", "linear", 2 * (1 + 2) + (3 + 20)),
        ((4, 0, 1, 2), "gather", "linear", 3 * (3 + 20)),  # the root is alone on its machine
        ((0, 1, 2, 3), "scatter", "tree", (1 + 4) + (1 + 2)),
        ((0, 1, 2, 3), "barrier", "dissemination", 2 * 1),
        ((0, 4), "barrier", "auto", 3),
    ],
)
def test_between_machines(
    workers: tuple[int, ...], collective: str, algorithm: str, seconds: float
) -> None:
    assert collective_time(machines(), workers, collective, SIZE, algorithm) == pytest.approx(
        seconds
    )


def test_the_root_of_a_ring_reaches_its_neighbours_only() -> None:
    assert collective_time(ring(3, LINK), (0, 1, 2), "gather", SIZE, "linear") > 0
    with pytest.raises(InputError, match='no link joins "worker0" and "worker2" in the ring'):
        collective_time(ring(4, LINK), range(4), "gather", SIZE)
    with pytest.raises(InputError, match="no link joins"):
        collective_time(ring(4, LINK), range(4), "barrier", SIZE)


def test_a_barrier_takes_no_bytes() -> None:
    cluster = switch(8, link=LINK)
    assert collective_time(cluster, range(8), "barrier", 1e9) == 3


@given(size=st.floats(0, 1e6))
def test_the_cheapest_is_found_among_the_times_by_size(size: float) -> None:
    times = collective_times(machines(), range(12), "all_reduce")
    assert (*times, "nvls") == algorithms_of("all_reduce")  # whose switches do not add up
    cheapest = min(time_of(size) for time_of in times.values())
    assert collective_time(machines(), range(12), "all_reduce", size) == cheapest
    for name, time_of in times.items():
        assert collective_time(machines(), range(12), "all_reduce", size, name) == time_of(size)


def test_only_algorithms_with_links_have_a_time() -> None:
    assert set(collective_times(ring(6, LINK), range(6), "all_reduce")) == {"ring"}
    assert collective_times(switch(4), (2,), "reduce", "ring")["ring"](SIZE) == 0


def test_reduce_scatter_is_part_of_a_ring_reduction() -> None:
    links = [LINK] * 7
    rest = ring_reduce(8, SIZE, LINK, links) - ring_reduce_scatter(8, SIZE, LINK)
    assert rest == pytest.approx(linear_gather(SIZE, links))
