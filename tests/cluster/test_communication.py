"""Collectives between given workers: which links they take, which algorithm is the cheapest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, hierarchical, ring, star, switch
from paracosm.cluster.collectives import (
    COLLECTIVES,
    collective_time,
    group_classes,
    message_link,
    ring_all_reduce,
)
from paracosm.cluster.link import Link
from paracosm.errors import InputError

INNER = Link(bandwidth=100.0, latency=1.0)
OUTER = Link(bandwidth=10.0, latency=3.0)
SIZE = 1200.0


def machines() -> Cluster:
    """Three machines of four workers."""
    return hierarchical(12, 4, INNER, OUTER)


@pytest.mark.parametrize(
    ("workers", "collective", "algorithm", "seconds"),
    [
        ((0, 1, 2, 3), "all_reduce", "ring", 6 * (1 + 3)),  # one machine
        ((0, 4, 8), "all_reduce", "ring", 4 * (3 + 40)),  # one of each
        ((2, 3, 4, 5), "all_reduce", "ring", 6 * (3 + 30)),  # a ring over two waits for the slowest
        ((2, 3, 4, 5), "all_reduce", "hierarchical", 2 * (1 + 6) + 2 * (3 + 30)),
        ((0, 1, 2, 4), "all_reduce", "hierarchical", 4 * (1 + 4) + 2 * (3 + 60)),  # 3 and 1
        ((0, 1, 2, 3), "all_reduce", "hierarchical", 6 * (1 + 3)),
        ((0, 1, 2, 3), "all_reduce", "tree", 4 * (1 + 12)),
        ((0, 1, 2, 3), "all_reduce", "halving-doubling", 2 * (1 + 6 + 1 + 3)),
        ((0, 1, 2, 3), "all_gather", "ring", 3 * (1 + 3)),
        ((2, 3, 4, 5), "reduce_scatter", "hierarchical", (1 + 6) + (3 + 30)),
        ((0, 1, 2, 3), "broadcast", "tree", 2 * (1 + 12)),
        ((0, 1, 2, 3), "all_to_all", "pairwise", 3 * (1 + 3)),
        ((0, 1, 4, 5), "all_to_all", "pairwise", 3 * (3 + 30)),
        ((7,), "all_reduce", "auto", 0.0),
    ],
)
def test_by_hand(workers: tuple[int, ...], collective: str, algorithm: str, seconds: float) -> None:
    assert collective_time(machines(), workers, collective, SIZE, algorithm) == pytest.approx(
        seconds
    )


def test_auto_is_the_cheapest() -> None:
    """Few bytes go by the tree, many by the ring."""
    cluster = switch(64, link=Link(bandwidth=1e9, latency=1e-5))
    ways = ("ring", "tree", "halving-doubling")

    def times(size: float) -> list[float]:
        return [collective_time(cluster, range(64), "all_reduce", size, way) for way in ways]

    for size in (1.0, 1e4, 1e6, 1e9):
        assert collective_time(cluster, range(64), "all_reduce", size) == min(times(size))
    small, large = times(1.0), times(1e10)
    assert small[1] < small[0]
    assert large[0] < large[1]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_workers_that_nothing_joins_are_named(collective: str) -> None:
    with pytest.raises(InputError, match='no link joins "worker0" and "worker1" in the star'):
        collective_time(star(4, 1), range(4), collective, 1.0)


def test_on_a_ring_neighbours_reduce_and_others_cannot() -> None:
    cluster = ring(6, INNER)
    expected = ring_all_reduce(6, SIZE, INNER)
    assert collective_time(cluster, range(6), "all_reduce", SIZE) == expected
    with pytest.raises(InputError, match='no link joins "worker2" and "worker0" in the ring'):
        collective_time(cluster, (0, 1, 2), "all_reduce", SIZE, "ring")
    with pytest.raises(InputError, match="needs machines of several workers"):
        collective_time(cluster, range(6), "all_reduce", SIZE, "hierarchical")


def test_a_link_of_its_own_slows_those_who_use_it() -> None:
    slow = (("worker1", "worker2", OUTER),)
    cluster = dataclasses.replace(switch(4, link=INNER), overrides=slow)
    assert collective_time(cluster, range(4), "all_reduce", SIZE, "ring") == 6 * (3 + 30)
    assert collective_time(cluster, (0, 1), "all_reduce", SIZE, "ring") == 2 * (1 + 6)
    assert message_link(cluster, 1, 2).transfer_time(SIZE) == 123
    assert message_link(cluster, 0, 2).transfer_time(SIZE) == 13


def test_unknown_words_are_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match='did you mean "all_reduce"'):
        collective_time(machines(), (0, 1), "allreduce", 1.0)
    with pytest.raises(InputError, match="unknown algorithm for all_gather"):
        collective_time(machines(), (0, 1), "all_gather", 1.0, "tree")


clusters = st.one_of(
    st.builds(
        lambda each, count: hierarchical(each * count + 1, each, INNER, OUTER),
        st.integers(1, 4),
        st.integers(2, 4),
    ),
    st.just(switch(13, link=INNER)),
    st.just(
        dataclasses.replace(
            switch(13, link=INNER), overrides=(("worker1", "worker4", Link(bandwidth=1.0)),)
        )
    ),
)


@given(cluster=clusters, data=st.data())
def test_groups_of_a_class_cost_the_same(cluster: Cluster, data: st.DataObject) -> None:
    count = len(cluster.workers)
    width = data.draw(st.integers(2, count))
    groups = np.array(
        [
            sorted(data.draw(st.permutations(range(count)))[:width])
            for _ in range(data.draw(st.integers(1, 6)))
        ]
    )
    number = group_classes(cluster, groups)
    first = [number.tolist().index(each) for each in range(max(number) + 1)]
    for collective in COLLECTIVES:
        times = [collective_time(cluster, group, collective, SIZE) for group in groups]
        assert times == [times[first[each]] for each in number]


@given(cluster=clusters, data=st.data())
def test_links_of_a_ring_are_those_of_its_neighbours(cluster: Cluster, data: st.DataObject) -> None:
    """Against all pairs of neighbours, one by one."""
    names = cluster.workers
    group = data.draw(st.permutations(range(len(names))))[: data.draw(st.integers(2, len(names)))]
    links = [
        cluster.link(names[one], names[other])
        for one, other in zip(group, [*group[1:], group[0]], strict=True)
    ]
    found = collective_time(cluster, group, "all_reduce", SIZE, "ring")
    assert found == ring_all_reduce(len(group), SIZE, links)


def test_thousands_of_workers() -> None:
    cluster = hierarchical(4096, 8, INNER, OUTER)
    expected = ring_all_reduce(8, SIZE, INNER) + ring_all_reduce(512, SIZE / 8, OUTER)
    assert collective_time(cluster, range(4096), "all_reduce", SIZE, "hierarchical") == expected


def test_an_all_to_all_sends_to_all_at_once() -> None:
    """Two machines: three messages one after the other, and latency once. Three: messages between
    them take 1 / 0.66 of the time."""
    two = collective_time(machines(), (0, 1, 4, 5), "all_to_all", SIZE, "direct")
    assert two == pytest.approx(3 + 3 * 30)
    three = collective_time(machines(), (0, 4, 8), "all_to_all", SIZE, "direct")
    assert three == pytest.approx(3 + 2 * 40 / 0.66)
    assert collective_time(machines(), (0, 4, 8), "all_to_all", SIZE) == three
