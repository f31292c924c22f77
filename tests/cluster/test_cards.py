"""Workers that share the network cards of their machine, and the uplinks of leaf switches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, hierarchical
from paracosm.cluster.collectives import (
    COLLECTIVES,
    algorithms_of,
    collective_time,
    group_classes,
    message_link,
    ring_all_reduce,
)
from paracosm.cluster.description import cluster_from_mapping
from paracosm.cluster.link import Hierarchical, Link
from paracosm.cluster.nccl import Nccl
from paracosm.errors import InputError

INNER = Link(bandwidth=100.0, latency=1.0)
OUTER = Link(bandwidth=10.0, latency=3.0, overhead=0.5)
SIZE = 1200.0
RINGS = np.arange(16).reshape(2, 8).T  # (0, 8), (1, 9), ...: as many as a machine has workers


def machines(cards: int | None, **more: Any) -> Cluster:
    """Two machines of eight workers."""
    return hierarchical(16, 8, INNER, OUTER, cards=cards, **more)


@pytest.mark.parametrize(("cards", "load"), [(1, 8), (2, 4), (4, 2), (8, 1), (None, 1), (3, 3)])
def test_eight_rings_share_the_cards(cards: int | None, load: int) -> None:
    """With 3 cards worker 0 shares the first of them with 1 and 2."""
    time = collective_time(machines(cards), RINGS[0], "all_reduce", SIZE, "ring", RINGS[1:])
    # Two exchanges of 600 bytes: each asks the card for 60.5 s, as do those of the other rings.
    assert time == pytest.approx(2 * (load * (0.5 + 60) + 3))
    alone = collective_time(machines(cards), RINGS[0], "all_reduce", SIZE, "ring")
    assert alone == pytest.approx(2 * (0.5 + 60 + 3))


def test_without_latency_eight_rings_take_eight_times_as_long() -> None:
    cluster = hierarchical(16, 8, INNER, Link(bandwidth=10.0), cards=1)
    alone = collective_time(cluster, RINGS[0], "all_reduce", SIZE, "ring")
    together = collective_time(cluster, RINGS[0], "all_reduce", SIZE, "ring", RINGS[1:])
    assert together == 8 * alone == 8 * ring_all_reduce(2, SIZE, Link(bandwidth=10.0))


@pytest.mark.parametrize(
    ("collective", "algorithm", "seconds"),
    [
        # Within machines 14 steps of 150; then all eight send a quarter of the card each.
        ("all_reduce", "hierarchical", 14 * (1 + 1.5) + 2 * (2 * (0.5 + 7.5) + 3)),
        # Only neighbours 7, 8 and 15, 0 are on two machines.
        ("all_reduce", "ring", 30 * (0.5 + 7.5 + 3)),
        ("broadcast", "tree", 4 * (0.5 + 120 + 3)),  # in one of the steps rank 0 sends to rank 8
        # In step k, min(k, 16 - k) of a machine send to the other one: of two neighbours on a card
        # one or both. Steps 1 and 15: one; 2 to 14: two.
        ("all_to_all", "pairwise", 2 * (0.5 + 7.5 + 3) + 13 * (2 * (0.5 + 7.5) + 3)),
        # Steps of 600, 300, 150 and 75 bytes, there and back, each charged the slowest link: that
        # of the distance of 8, at which all eight of a machine send.
        ("all_reduce", "halving-doubling", 2 * (4 * (2 * 0.5 + 3) + 2 * (60 + 30 + 15 + 7.5))),
    ],
)
def test_one_group_on_all_workers(collective: str, algorithm: str, seconds: float) -> None:
    """Four cards, each for two neighbours."""
    cluster = machines(4)
    found = collective_time(cluster, range(16), collective, SIZE, algorithm)
    assert found == pytest.approx(seconds)


def test_a_half_duplex_card_sends_and_receives_in_turn() -> None:
    outer = Link(bandwidth=10.0, latency=3.0, duplex="half")
    cluster = hierarchical(16, 8, INNER, outer, cards=1)
    time = collective_time(cluster, RINGS[0], "all_reduce", SIZE, "ring", RINGS[1:])
    assert time == pytest.approx(2 * (16 * 60 + 3))


def test_latency_that_holds_a_card_counts_for_every_message() -> None:
    outer = Link(bandwidth=10.0, latency=3.0, pipelined=False)
    cluster = hierarchical(16, 8, INNER, outer, cards=2)
    time = collective_time(cluster, RINGS[0], "all_reduce", SIZE, "ring", RINGS[1:])
    assert time == pytest.approx(2 * 4 * (60 + 3))


def test_messages_between_machines_share_cards_and_uplinks() -> None:
    """Four machines of two under two leaf switches, whose uplinks carry one message at a time."""
    pairs = np.array([[w, (w + 4) % 8] for w in range(8)])  # all to the other leaf
    narrow = hierarchical(8, 2, INNER, OUTER, cards=1, leaf=2, oversubscription=2)
    assert message_link(narrow, 0, 4) == OUTER
    assert message_link(narrow, 0, 4, pairs[1:]) == OUTER.shared(4)
    assert message_link(narrow, 0, 4, pairs[1:2]) == OUTER.shared(2)
    wide = hierarchical(8, 2, INNER, OUTER, leaf=2, oversubscription=2)  # two at a time
    assert message_link(wide, 0, 4, pairs[1:]) == OUTER.shared(2)
    inside = np.array([[w, (w + 2) % 4] for w in range(4)])  # all within the leaf
    assert message_link(narrow, 0, 2, inside[1:]) == OUTER.shared(2)
    assert message_link(narrow, 0, 1, pairs[1:]) == INNER


layouts = st.tuples(
    st.sampled_from([1, 2, 3, 4, 6, 8]),  # group_size
    st.integers(1, 8),  # cards
    st.sampled_from([None, 1, 2]),  # leaf
)


@given(layout=layouts, stride=st.integers(1, 6), width=st.integers(2, 6), data=st.data())
def test_groups_of_a_class_cost_the_same_together(
    layout: tuple[int, int, int | None], stride: int, width: int, data: st.DataObject
) -> None:
    """Groups as strategies lay them out: every `stride`-th worker, and the same further on."""
    size, cards, leaf = layout
    stages = data.draw(st.integers(1, 3))
    count = stages * stride * width
    more: dict[str, Any] = {} if leaf is None else {"leaf": leaf, "oversubscription": 1.5}
    cluster = hierarchical(count, size, INNER, OUTER, cards=min(cards, size), **more)
    groups = np.arange(count).reshape(stages, width, stride).transpose(0, 2, 1).reshape(-1, width)
    stage = np.repeat(np.arange(stages), stride)
    number = group_classes(cluster, groups, stage)
    if leaf is None and data.draw(st.booleans()):
        topology = cluster.topology
        assert isinstance(topology, Hierarchical)
        cluster = replace(cluster, topology=replace(topology, nccl=Nccl()))
    for collective in COLLECTIVES:
        for algorithm in set(algorithms_of(collective)) - {"nvls"}:
            times: dict[int, float] = {}
            for at, group in enumerate(groups):
                others = (stage == stage[at]) & (np.arange(len(groups)) != at)
                time = collective_time(cluster, group, collective, SIZE, algorithm, groups[others])
                assert time == times.setdefault(int(number[at]), time)
                assert time >= collective_time(cluster, group, collective, SIZE, algorithm)


FILE: dict[str, Any] = {
    "topology": "hierarchical",
    "workers": 16,
    "group_size": 8,
    "cards": 4,
    "leaf_switches": {"groups": 1, "oversubscription": 2.5},
    "links": {"default": {"bandwidth": "100GB/s"}, "between_groups": {"bandwidth": "10GB/s"}},
}


def test_the_file_says_cards_and_leaf_switches() -> None:
    cluster = cluster_from_mapping(FILE)
    inner, outer = Link(bandwidth=100e9), Link(bandwidth=10e9)
    assert cluster == hierarchical(16, 8, inner, outer, cards=4, leaf=1, oversubscription=2.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cards": 9}, "cards must be 1 to group_size=8, not 9"),
        ({"leaf_switches": {"groups": 2, "oversubscription": 1}}, "must be above 1, not 1"),
        ({"leaf_switches": {"groups": 0, "oversubscription": 2}}, "leaf_switches.groups"),
        ({"topology": "switch", "group_size": None}, "cards belongs to topology hierarchical"),
        (
            {"links": {"default": {"sharing": "serial"}, "between_groups": {}}},
            "needs sharing fair or packets",
        ),
        (
            {
                "links": {
                    "default": {},
                    "between_groups": {},
                    "overrides": [{"between": ["worker0", "worker8"], "latency": 1}],
                }
            },
            "has no effect: messages take the cards",
        ),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_from_mapping(FILE | change)
