"""What messages pass in a cluster, and what they ask for, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from paracosm.cluster.cluster import Cluster, Node, hierarchical, ring, star, switch
from paracosm.cluster.link import Link, Switch
from paracosm.network import Stations

SLOW = Link(bandwidth=1e6, latency=1e-3, overhead=1e-4, sharing="fair", pipelined=True)


def names(stations: Stations, source: str, target: str) -> list[str]:
    return [stations.names[at] for at in stations.connect(source, target).stations]


def test_a_message_passes_a_port_at_either_end() -> None:
    stations = Stations(star(2, 1, SLOW))
    assert names(stations, "worker1", "server0") == ["worker1.send", "server0.receive"]
    assert names(stations, "server0", "worker1") == ["server0.send", "worker1.receive"]
    assert stations.capacity == [1e6] * 4
    assert stations.connect("worker1", "server0") is stations.connections[0]


def test_half_duplex_takes_both_ports_of_both_nodes() -> None:
    link = Link(bandwidth=1e6, duplex="half", sharing="serial", pipelined=True)
    stations = Stations(star(1, 1, link))
    there = set(names(stations, "worker0", "server0"))
    assert there == {"worker0.send", "worker0.receive", "server0.send", "server0.receive"}
    assert set(names(stations, "server0", "worker0")) == there


def test_what_fair_messages_ask_for() -> None:
    """1000 bytes and 100 us of overhead at 1 MB/s: 1100 bytes; a latency that holds adds 1000."""
    pipelined = Stations(star(1, 1, SLOW)).connect("worker0", "server0")
    assert pipelined.in_bytes
    assert pipelined.demand(1000) == pytest.approx(1100)
    assert pipelined.propagation(1000) == 10**9
    held = Link(bandwidth=1e6, latency=1e-3, overhead=1e-4, sharing="fair", pipelined=False)
    connection = Stations(star(1, 1, held)).connect("worker0", "server0")
    assert connection.demand(1000) == pytest.approx(2100)
    assert connection.propagation(1000) == 0


def test_what_serial_messages_ask_for() -> None:
    link = Link(bandwidth=1e6, latency=1e-3, overhead=1e-4, sharing="serial", pipelined=False)
    connection = Stations(star(1, 1, link)).connect("worker0", "server0")
    assert not connection.in_bytes
    assert connection.demand(1000) == 2_100_000_000  # 2.1 ms
    assert connection.propagation(1000) == 0


def test_endless_bandwidth_is_not_shared_but_can_be_held() -> None:
    for sharing, count in (("fair", 0), ("serial", 2)):
        link = Link(overhead=2e-6, sharing=sharing, pipelined=True)  # type: ignore[arg-type]
        connection = Stations(star(1, 1, link)).connect("worker0", "server0")
        assert len(connection.stations) == count
        assert connection.demand(1e9) == 2_000_000


def test_within_a_node_nothing_is_passed() -> None:
    stations = Stations(star(2, 1, SLOW, placement="workers"))
    assert stations.connect("worker0", "server0").stations == ()
    assert stations.connect("worker0", "server0").demand(1e9) == 0
    assert names(stations, "worker1", "server0") == ["worker1.send", "worker0.receive"]


@pytest.mark.parametrize("duplex", ["full", "half"])
def test_a_port_is_as_fast_as_the_fastest_link_and_a_slower_link_is_a_station(duplex: str) -> None:
    def link(bandwidth: float) -> Link:
        return Link(bandwidth, duplex=duplex, sharing="fair", pipelined=True)  # type: ignore[arg-type]

    cluster = Cluster(
        nodes=tuple(Node(name) for name in ("worker0", "worker1", "server0")),
        workers=("worker0", "worker1"),
        servers=("server0",),
        topology=Switch(link(10.0)),
        overrides=(("worker0", "server0", link(30.0)), ("worker1", "server0", link(4.0))),
    )
    stations = Stations(cluster)
    capacity = {
        stations.names[at]: stations.capacity[at]
        for pair in (("worker0", "server0"), ("worker1", "server0"), ("server0", "worker1"))
        for at in stations.connect(*pair).stations
    }
    assert capacity["worker0.send"] == capacity["server0.receive"] == 30.0
    assert capacity["worker1.send"] == 10.0
    slow = [name for name, each in capacity.items() if each == 4.0]
    both = ["worker1 to server0", "server0 to worker1"]
    assert slow == (both if duplex == "full" else ["server0 and worker1"])


def test_a_node_without_a_link_of_the_common_kind_has_no_port_as_fast_as_that() -> None:
    slow, common = Link(4.0, sharing="fair"), Link(10.0, sharing="fair")
    pairs = (("worker0", "worker1"), ("worker0", "worker2"))
    for cluster in (switch(3, link=common), hierarchical(3, 3, common, Link(1.0)), ring(3, common)):
        stations = Stations(replace(cluster, overrides=tuple((*pair, slow) for pair in pairs)))
        for pair in (*pairs, ("worker1", "worker2")):
            stations.connect(*pair)
        capacity = dict(zip(stations.names, stations.capacity, strict=True))
        assert capacity["worker0.send"] == 4.0
        assert capacity["worker1.send"] == capacity["worker2.receive"] == 10.0


def test_groups_have_ports_of_their_own_for_what_leaves_them() -> None:
    inner, outer = (Link(each, sharing="fair", pipelined=True) for each in (10.0, 3.0))
    stations = Stations(hierarchical(4, 2, inner, outer, servers=1))  # server0 is in group 0
    assert names(stations, "worker0", "server0") == ["worker0.send", "server0.receive"]
    there = ["worker2.outer.send", "server0.outer.receive"]
    assert names(stations, "worker2", "server0") == there
    assert stations.capacity == [10.0, 10.0, 3.0, 3.0]
    assert inf not in stations.capacity
