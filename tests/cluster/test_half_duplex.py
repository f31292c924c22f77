"""Collectives on links whose ports either send or receive."""

from __future__ import annotations

import pytest

from paracosm.cluster import Link, switch
from paracosm.cluster.collectives import (
    collective_time,
    halving_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    tree_all_reduce,
)

FULL = Link(bandwidth=10.0, latency=2.0, overhead=1.0, pipelined=False)
HALF = Link(bandwidth=10.0, latency=2.0, overhead=1.0, duplex="half", pipelined=False)
PIPELINED = Link(bandwidth=10.0, latency=2.0, overhead=1.0, duplex="half")


def test_an_exchange_is_two_messages_one_after_the_other() -> None:
    """40 bytes: 1 + 2 + 4 s, twice; pipelined the second goes out 1 + 4 s after the first."""
    assert FULL.exchange_time(40.0) == FULL.transfer_time(40.0) == 7.0
    assert HALF.exchange_time(40.0) == 14.0
    assert PIPELINED.exchange_time(40.0) == 5.0 + 7.0


def test_steps_in_which_everybody_sends_and_receives_take_twice_as_long() -> None:
    for collective in (ring_all_reduce, ring_all_gather, halving_doubling_all_reduce):
        assert collective(8, 80.0, HALF) == 2 * collective(8, 80.0, FULL)
    # In a binomial tree a rank either sends or receives.
    assert tree_all_reduce(8, 80.0, HALF) == tree_all_reduce(8, 80.0, FULL)


def test_ranks_beyond_a_power_of_two_hand_over_one_way() -> None:
    """Six: 4 that halve and double, and two messages of all 80 bytes (11 s) in turn."""
    extra = 2 * 11.0
    four = halving_doubling_all_reduce(4, 80.0, FULL)
    assert halving_doubling_all_reduce(6, 80.0, HALF) == pytest.approx(2 * four + extra)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_groups_of_a_cluster(collective: str) -> None:
    """For so few ranks and so many bytes no algorithm is cheaper than those that exchange."""
    full, half = (
        collective_time(switch(4, link=link), range(4), collective, 4000.0) for link in (FULL, HALF)
    )
    assert half == 2 * full
