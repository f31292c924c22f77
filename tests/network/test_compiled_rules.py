"""Both compiled rules by hand, and the laws of each. Bytes, bytes/ps, picoseconds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from compiled_driver import Message, play
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.network.stations import binding_routes

STATIONS = 5


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[Message], list[list[int]], list[float]]:
    """Messages in the order of their instants, over routes of up to four stations."""
    places = st.lists(st.integers(0, STATIONS - 1), unique=True, min_size=1, max_size=4)
    routes = draw(st.lists(places, min_size=1, max_size=5))
    instants = sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=14)))
    messages = [
        Message(at, draw(st.integers(0, len(routes) - 1)), float(draw(st.integers(0, 30))))
        for at in instants
    ]
    capacity = [float(draw(st.integers(1, 4))) for _ in range(STATIONS)]
    return messages, routes, capacity


def test_serial_messages_take_turns_in_the_order_of_requests() -> None:
    """Three to one target: 5, then 3, then 2, though the last one is the shortest."""
    messages = [Message(0, 0, 5), Message(1, 1, 3), Message(1, 2, 2)]
    assert play("serial", messages, [[0, 3], [1, 3], [2, 3]], [1] * 4) == [(0, 5), (1, 8), (2, 10)]


def test_serial_who_waits_for_a_busy_target_lets_others_pass() -> None:
    """0 -> 3 until 5. 1 -> 3 waits for it, 1 -> 4 does not: its sender holds nothing yet."""
    messages = [Message(0, 0, 5), Message(1, 1, 3), Message(2, 2, 2)]
    routes = [[0, 3], [1, 3], [1, 4]]
    assert play("serial", messages, routes, [1] * 5) == [(2, 4), (0, 5), (1, 8)]


def test_serial_a_freed_station_goes_to_the_oldest_that_can_start() -> None:
    """Station 0 is free at 4. Request 2 needs station 1 too, busy until 9; request 3 does not."""
    messages = [Message(0, 0, 4), Message(0, 1, 9), Message(1, 2, 3), Message(2, 0, 3)]
    routes = [[0], [1], [0, 1]]
    assert play("serial", messages, routes, [1, 1]) == [(0, 4), (3, 7), (1, 9), (2, 12)]


def test_serial_half_duplex_holds_four_ports() -> None:
    """a -> b and b -> a take turns, where all four ports are held; with two each they do not."""
    messages = [Message(0, 0, 5), Message(0, 1, 5)]
    assert play("serial", messages, [[0, 3], [2, 1]], [1] * 4) == [(0, 5), (1, 5)]
    half = [[0, 3, 1, 2], [2, 1, 3, 0]]
    assert play("serial", messages, half, [1] * 4) == [(0, 5), (1, 10)]


@pytest.mark.parametrize("sharing", ["serial", "fair"])
def test_over_no_station_a_message_takes_what_it_asks_for(sharing: str) -> None:
    messages = [Message(0, 0, 5), Message(1, 0, 3), Message(1, 0, 0)]
    assert play(sharing, messages, [[]], []) == [(2, 1), (1, 4), (0, 5)]


def test_fair_messages_share_and_what_is_left_over_goes_to_others() -> None:
    """Three of 12 bytes at 6/ps, 2 each, one held to 1 by another station: 2.5 for the others.

    They end at 4.8: after 5 ps. Then 7 bytes are left of the slow one: 7 more.
    """
    messages = [Message(0, 0, 12), Message(0, 0, 12), Message(0, 1, 12)]
    assert play("fair", messages, [[0], [0, 1]], [6, 1]) == [(0, 5), (1, 5), (2, 12)]


def test_fair_ends_of_one_instant_come_in_the_order_of_requests() -> None:
    messages = [Message(0, 1, 4), Message(0, 0, 4), Message(0, 2, 4), Message(0, 0, 4)]
    got = play("fair", messages, [[0], [1], []], [2, 1])
    assert got == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_fair_weights_share_in_proportion() -> None:
    """6 bytes/ps by 2 to 1: 4 and 2. The first ends after 3; the other has 6 left, at 6 each."""
    messages = [Message(0, 0, 12, 2.0), Message(0, 0, 12, 1.0)]
    assert play("fair", messages, [[0]], [6]) == [(0, 3), (1, 4)]


def test_fair_background_takes_its_share() -> None:
    """Two flows of others beside one: a third of 6 bytes/ps, also where its own port is as wide."""
    for route in ([0], [0, 1]):
        assert play("fair", [Message(0, 0, 12)], [route], [6, 6], {0: 2.0}) == [(0, 6)]


def test_workers_around_a_server_are_one_station() -> None:
    routes = [[worker, 8] for worker in range(8)]
    assert binding_routes(routes, [2.0] * 9) == [(8,)] * 8
    # Half duplex: each worker's two ports, the server's two; one station limits all.
    routes += [[8, worker] for worker in range(8)]
    half = [
        sorted([2 * route[0], 2 * route[1] + 1, 2 * route[0] + 1, 2 * route[1]]) for route in routes
    ]
    assert set(binding_routes(half, [2.0] * 18)) == {(17,)}
    # Of two servers, each worker's port can be the narrow one, unless it is as wide as both.
    two = [[worker, server] for worker in range(4) for server in (4, 5)]
    assert binding_routes(two, [2.0] * 6) == [tuple(route) for route in two]
    assert binding_routes(two, [4.0] * 4 + [2.0] * 2) == [(server,) for _, server in two]


@settings(deadline=None, max_examples=200)
@given(traffic())
def test_serial_nobody_overlaps_and_nobody_waits_without_need(
    case: tuple[list[Message], list[list[int]], list[float]],
) -> None:
    """By the definition: at every instant, of all requests that can start the first one does."""
    messages, routes, capacity = case
    got = play("serial", messages, routes, capacity)
    end = dict(got)
    assert len(end) == len(messages)
    begin = {at: end[at] - int(messages[at].demand) for at in end}
    assert all(begin[at] >= messages[at].at for at in begin)
    for one in begin:
        for other in range(one):
            if set(routes[messages[one].route]) & set(routes[messages[other].route]):
                assert begin[one] >= end[other] or begin[other] >= end[one]
    ways = [set(routes[message.route]) for message in messages]
    for one, message in enumerate(messages):
        for instant in range(message.at, begin[one]):
            busy = [at for at in begin if begin[at] <= instant < end[at]]
            assert any(ways[one] & ways[at] for at in busy), f"{one} waits at {instant} for nobody"
            # A younger one began now: without it, this one could still not have begun, since a
            # message held its stations, if only up to this instant (ends come one after another).
            held = [at for at in begin if begin[at] <= instant <= end[at]]
            for younger in (at for at in busy if at > one and begin[at] == instant):
                assert any(ways[one] & ways[at] for at in held if at != younger)
    assert got == sorted(got, key=lambda each: each[1])


@settings(deadline=None, max_examples=200)
@given(traffic())
def test_fair_no_byte_is_lost_and_no_station_is_overtaxed(
    case: tuple[list[Message], list[list[int]], list[float]],
) -> None:
    messages, routes, capacity = case
    got = play("fair", messages, routes, capacity)
    end = dict(got)
    assert len(end) == len(messages)
    for station in range(STATIONS):
        over = [at for at in end if station in routes[messages[at].route]]
        for start in {messages[at].at for at in over}:
            for stop in {end[at] for at in over}:
                inside = [at for at in over if messages[at].at >= start and end[at] <= stop]
                room = capacity[station] * (max(0, stop - start) + len(inside) / 1024)
                assert sum(messages[at].demand for at in inside) <= room + 1e-9
    order = [(instant, message) for message, instant in got]
    assert order == sorted(order)


@settings(deadline=None, max_examples=200)
@given(traffic())
def test_fair_ends_are_those_of_exact_rates(
    case: tuple[list[Message], list[list[int]], list[float]],
) -> None:
    """The textbook's filling in exact arithmetic, anew at every instant."""
    messages, routes, capacity = case
    assert dict(play("fair", messages, routes, capacity)) == _exact_ends(messages, routes, capacity)


def _exact_ends(
    messages: list[Message], routes: list[list[int]], capacity: list[float]
) -> dict[int, int]:
    left: dict[int, Fraction] = {}
    end: dict[int, int] = {}
    now = asked = 0
    while len(end) < len(messages):
        rates = _exact_rates({at: routes[messages[at].route] for at in left}, capacity)
        due = {
            at: now + max(0, -((-(left[at] / rates[at] - Fraction(1, 1024))) // 1)) for at in left
        }
        then = min([*due.values(), *(message.at for message in messages[asked:])])
        left = {at: left[at] - rates[at] * (then - now) for at in left}
        now = int(then)
        end |= {at: now for at in left if due[at] == now}
        left = {at: left[at] for at in left if at not in end}
        while asked < len(messages) and messages[asked].at == now:
            left[asked] = Fraction(messages[asked].demand)
            asked += 1
    return end


def _exact_rates(flows: dict[int, list[int]], capacity: list[float]) -> dict[int, Fraction]:
    rates: dict[int, Fraction] = {}
    left = [Fraction(each) for each in capacity]
    while len(rates) < len(flows):
        growing = [flow for flow in flows if flow not in rates]
        share = {
            station: left[station] / load
            for station in range(len(capacity))
            if (load := sum(station in flows[flow] for flow in growing))
        }
        level = min(share.values())
        narrow = {station for station in share if share[station] == level}
        for flow in growing:
            if narrow & set(flows[flow]):
                rates[flow] = level
                for station in flows[flow]:
                    left[station] -= level
    return rates
