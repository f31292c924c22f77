"""The rules of sharing in Python and compiled: the same traffic, equal to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, hierarchical, ring, star, switch
from paracosm.cluster.collectives import shares_ports
from paracosm.cluster.link import Duplex, Link, Packets, Sharing
from paracosm.compiled import compiled_whole
from paracosm.network import Stations, compiled
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.fair import FairTraffic
from paracosm.network.packets import PacketTraffic
from paracosm.network.serial import SerialTraffic
from paracosm.network.stations import binding_routes

Ints = npt.NDArray[np.int64]
Message = tuple[int, int, float]  # when, over which route, what it asks for


@compiled_whole
def play(traffic: Any, time: Any, route: Any, demand: Any, done: Any, order: Any) -> Any:
    """Ask for messages at their times; fill in when each ends, and in which order."""
    asked = ended = 0
    while True:
        now = compiled.next_end(traffic)
        if asked < len(time):
            now = min(now, time[asked])
        if now == LAST_INSTANT:
            return ended
        while True:
            message = compiled.pop_end(traffic, now)
            if message < 0:
                break
            done[message] = now
            order[ended] = message
            ended += 1
        while asked < len(time) and time[asked] == now:
            compiled.request(traffic, route[asked], asked, demand[asked], now)
            asked += 1
        compiled.settle(traffic, now)


Traffic = FairTraffic | SerialTraffic


def play_in_python(
    traffic: Traffic,
    routes: Sequence[Sequence[int]],
    messages: list[Message],
    copied: bool = False,
) -> tuple[list[int], list[int]]:
    """Do as `play`; `copied`: go on with a copy after every instant, and use up another one."""
    done, asked = dict[int, int](), 0
    order: list[int] = []
    while True:
        now = traffic.next_end()
        if asked < len(messages):
            now = min(now, messages[asked][0])
        if now == LAST_INSTANT:
            return [done[message] for message in range(len(messages))], order
        while (message := traffic.pop_end(now)) >= 0:
            done[message] = now
            order.append(message)
        while asked < len(messages) and messages[asked][0] == now:
            _, route, demand = messages[asked]
            path: Any = traffic.route(routes[route])
            traffic.request(asked, path, demand, now, stream=route)
            asked += 1
        traffic.settle(now)
        if copied:
            play_in_python(traffic.copy(), routes, [])
            traffic = traffic.copy()


def both(
    sharing: Sharing,
    routes: list[tuple[int, ...]],
    capacity: list[float],
    messages: list[Message],
) -> tuple[list[int], list[int]]:
    """Return when each message ends and in which order, after making sure that the rules agree."""
    time, route = (np.array([m[at] for m in messages], dtype=np.int64) for at in (0, 1))
    demand = np.array([m[2] for m in messages])
    room = np.bincount(route, minlength=len(routes)).tolist()
    traffic = compiled.make_traffic(sharing, routes, capacity, room)
    done, order = np.zeros(len(messages), np.int64), np.zeros(len(messages), np.int64)
    assert play(traffic, time, route, demand, done, order) == len(messages)
    rule: Traffic = SerialTraffic(capacity)
    if sharing != "serial":
        routes = binding_routes(routes, capacity)
        rule = FairTraffic(capacity)
    if isinstance(sharing, Packets):
        rule = PacketTraffic(sharing.quantum, capacity)
    expected = done.tolist(), order.tolist()
    assert play_in_python(rule.copy(), routes, messages) == expected
    assert play_in_python(rule, routes, messages, copied=True) == expected
    return expected


bandwidths = st.sampled_from([1e6, 2.5e6, 1e7 / 3, 1e8, 1.25e9])


@st.composite
def clusters(draw: st.DrawFn, sharing: Sharing) -> Cluster:
    """Clusters of every topology, with a few links of their own."""

    def link() -> Link:
        return Link(
            bandwidth=draw(bandwidths),
            latency=draw(st.sampled_from([0.0, 1e-6, 1e-3 / 7])),
            overhead=draw(st.sampled_from([0.0, 1e-5 / 3])),
            duplex=draw(st.sampled_from(list[Duplex](["full", "half"]))),
            pipelined=draw(st.booleans()),
            sharing=sharing,
        )

    workers = draw(st.integers(2, 6))
    kind = draw(st.sampled_from(["star", "switch", "ring", "hierarchical"]))
    if kind == "star":
        cluster = star(workers, draw(st.integers(1, 2)), link())
    elif kind == "switch":
        cluster = switch(workers, draw(st.integers(0, 2)), link())
    elif kind == "ring":
        cluster = ring(workers, link())
    else:
        each, outer = draw(st.integers(1, 3)), link()
        cards = draw(st.none() | st.integers(1, each))
        one_switch = sharing == "serial" or outer.duplex == "half"
        leaf = None if one_switch else draw(st.sampled_from([None, 1, 2]))
        more = {} if leaf is None else {"leaf": leaf, "oversubscription": 1.5}
        cluster = hierarchical(workers, each, link(), outer, 1, cards=cards, **more)
    free = [] if shares_ports(cluster) else joined(cluster)
    pairs = draw(st.lists(st.sampled_from(free), unique_by=frozenset, max_size=2)) if free else []
    overrides = tuple((a, b, link()) for a, b in pairs)
    return Cluster(
        cluster.nodes, cluster.workers, cluster.servers, cluster.topology, overrides=overrides
    )


def joined(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the pairs of names that can send to each other."""
    names = [node.name for node in cluster.nodes]
    place = {name: at for at, name in enumerate(names)}
    return [
        (a, b)
        for a in names
        for b in names
        if a != b and cluster.topology.between(place[a], place[b]) is not None
    ]


@st.composite
def traffics(
    draw: st.DrawFn, sharing: Sharing
) -> tuple[list[tuple[int, ...]], list[float], list[Message]]:
    """Return the routes and stations of a cluster, and messages in the order of their times."""
    cluster = draw(clusters(sharing))
    pairs = joined(cluster)
    stations = Stations(cluster)
    pauses = st.sampled_from([0, 0, 0, 1, 7_000_000, 333_333_333_333])
    messages: list[Message] = []
    now = 0
    for _ in range(draw(st.integers(1, 30))):
        now += draw(pauses)
        connection = stations.connect(*draw(st.sampled_from(pairs)))
        size = draw(st.sampled_from([1.0, 1e4, 1e6 / 3, 2e6, 7.77e7]))
        messages.append((now, connection.number, connection.demand(size)))
    return stations.routes, stations.capacity, messages


@st.composite
def traffics_at_one_server(
    draw: st.DrawFn,
) -> tuple[list[tuple[int, ...]], list[float], list[Message]]:
    """Return the same of workers around a server, all links alike."""
    stations = Stations(star(6, 1, Link(draw(bandwidths), sharing=Packets(1.0))))
    pauses = st.sampled_from([0, 0, 1, 7_000_000, 12_345_678_901, 333_333_333_333])
    messages: list[Message] = []
    now = 0
    for _ in range(draw(st.integers(1, 12))):
        now += draw(pauses)
        ends = f"worker{draw(st.integers(0, 5))}", "server0"
        connection = stations.connect(*(ends if draw(st.booleans()) else ends[::-1]))
        size = draw(st.sampled_from([1.0, 1e4, 1e6 / 3, 2e6, 7.77e7]))
        messages.append((now, connection.number, connection.demand(size)))
    return stations.routes, stations.capacity, messages


@settings(max_examples=300, deadline=None)
@given(traffics("fair"))
def test_fair_flows_end_at_the_same_picosecond(
    traffic: tuple[list[tuple[int, ...]], list[float], list[Message]],
) -> None:
    routes, capacity, messages = traffic
    done, _ = both("fair", routes, capacity, messages)
    for end, (begin, route, demand) in zip(done, messages, strict=True):
        alone = demand / min(capacity[station] for station in routes[route])
        assert (end - begin) * 1e-12 >= alone * (1 - 1e-9), "nobody is faster than alone"


@st.composite
def tangled_traffics(
    draw: st.DrawFn,
) -> tuple[list[tuple[int, ...]], list[float], list[Message]]:
    """Return traffic in which a flow changes rates far away: routes through any few of many ports.

    Bandwidths are often the same, so that several ports are full at one level.
    """
    count = draw(st.integers(2, 10))
    capacity = draw(st.lists(bandwidths, min_size=count, max_size=count))
    route = st.lists(st.integers(0, count - 1), min_size=1, max_size=4, unique=True).map(tuple)
    routes = draw(st.lists(route, min_size=count, max_size=2 * count))
    pauses = st.sampled_from([0, 1, 7_000_000, 333_333_333_333])
    sizes = st.sampled_from([1.0, 1e4, 1e6 / 3, 2e6, 7.77e7])
    rows = st.tuples(pauses, st.integers(0, len(routes) - 1), sizes)
    messages: list[Message] = []
    now = 0
    for pause, number, size in draw(st.lists(rows, min_size=count, max_size=40)):
        now += pause
        messages.append((now, number, size))
    return routes, capacity, messages


@settings(max_examples=150, deadline=None)
@given(tangled_traffics())
def test_only_what_changes_is_filled_anew_with_the_results_of_filling_all(
    traffic: tuple[list[tuple[int, ...]], list[float], list[Message]],
) -> None:
    """In Python, all ports that are connected with a change are filled from nothing on."""
    both("fair", *traffic)


quanta = st.sampled_from([Packets(1500.0), Packets(16384.0), Packets(1e6), Packets(1e9)])


@settings(max_examples=300, deadline=None)
@given(quanta.flatmap(lambda sharing: st.tuples(st.just(sharing), traffics(sharing))))
def test_packets_end_at_the_same_picosecond(
    case: tuple[Packets, tuple[list[tuple[int, ...]], list[float], list[Message]]],
) -> None:
    sharing, (routes, capacity, messages) = case
    done, _ = both(sharing, routes, capacity, messages)
    for end, (begin, route, demand) in zip(done, messages, strict=True):
        alone = demand / min(capacity[station] for station in routes[route])
        assert (end - begin) * 1e-12 >= alone * (1 - 1e-9), "nobody is faster than alone"


@settings(max_examples=300, deadline=None)
@given(traffics("serial"))
def test_ports_are_handed_on_in_the_same_order(
    traffic: tuple[list[tuple[int, ...]], list[float], list[Message]],
) -> None:
    routes, capacity, messages = traffic
    done, order = both("serial", routes, capacity, messages)
    held = [
        (end - int(m[2]), end, set(routes[m[1]])) for end, m in zip(done, messages, strict=True)
    ]
    for at, (begin, end, ports) in enumerate(held):
        assert begin >= messages[at][0]
        for other_begin, other_end, other_ports in held[:at]:
            if ports & other_ports:
                assert end <= other_begin or other_end <= begin, "ports are held alone"
    assert sorted(order) == list(range(len(messages)))


@settings(max_examples=200, deadline=None)
@given(traffics("fair"))
def test_connections_that_open_on_the_way_change_nothing(
    traffic: tuple[list[tuple[int, ...]], list[float], list[Message]],
) -> None:
    """A station that nobody else passes yet may be left out: all ends are the same, to a few ps."""
    routes, capacity, messages = traffic
    open_on_the_way("fair", FairTraffic(capacity), routes, capacity, messages)


@settings(max_examples=200, deadline=None)
@given(quanta, traffics_at_one_server())
def test_streams_that_open_on_the_way_change_nothing(
    sharing: Packets, traffic: tuple[list[tuple[int, ...]], list[float], list[Message]]
) -> None:
    """The same of packets, where it is clear which of several ports limits a stream."""
    routes, capacity, messages = traffic
    in_turn = PacketTraffic(sharing.quantum, capacity)
    open_on_the_way(sharing, in_turn, routes, capacity, messages)


def open_on_the_way(
    sharing: Sharing,
    flows: FairTraffic,
    routes: list[tuple[int, ...]],
    capacity: list[float],
    messages: list[Message],
) -> None:
    """Compare with routes that are known from the begin; a message for each."""
    one_each = list({message[1]: message for message in reversed(messages)}.values())[::-1]
    one_each.sort(key=lambda message: message[0])
    expected, _ = both(sharing, routes, capacity, one_each)
    done, asked = [0] * len(one_each), 0
    while True:
        now = flows.next_end()
        if asked < len(one_each):
            now = min(now, one_each[asked][0])
        if now == LAST_INSTANT:
            break
        while (message := flows.pop_end(now)) >= 0:
            done[message] = now
        while asked < len(one_each) and one_each[asked][0] == now:
            _, route, demand = one_each[asked]
            flows.send(asked, flows.connect(routes[route], now), demand, now)
            asked += 1
        flows.settle(now)
    for found, wanted in zip(done, expected, strict=True):
        assert abs(found - wanted) <= 10 + wanted * 1e-12
