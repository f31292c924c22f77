"""Streams that take turns: by hand, against the plain program, and in both limits.

Bytes, bytes/ps, picoseconds.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from compiled_driver import Message, play
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import Asked, ends_of

from paracosm.cluster.link import Packets
from paracosm.network.stations import binding_routes

PORTS = 4


def test_two_streams_have_a_quantum_each() -> None:
    """10 bytes and 4 bytes at 1/ps, turns of 2: AABBAABB, then A alone: 8 and 14."""
    messages = [Message(0, 0, 10), Message(0, 1, 4)]
    assert play(Packets(2), messages, [[0], [0]], [1]) == [(1, 8), (0, 14)]


def test_who_comes_late_waits_for_the_turn_that_is_under_way() -> None:
    """B comes at 5, in A's second turn of 4: A to 8, B to 11, A on to 15: B has not 6 ps but 3."""
    messages = [Message(0, 0, 12), Message(5, 1, 3)]
    assert play(Packets(4), messages, [[0], [0]], [1]) == [(1, 11), (0, 15)]


def test_who_has_used_up_a_turn_stands_before_who_comes_at_that_instant() -> None:
    """At 4 A's turn is over and B comes: A again, to 8, and then B."""
    messages = [Message(0, 0, 8), Message(4, 1, 3)]
    assert play(Packets(4), messages, [[0], [0]], [1]) == [(0, 8), (1, 11)]


def test_the_next_message_of_a_stream_goes_on_with_the_turn() -> None:
    """Turns of 4. A sends 3, then 5 at once: 1 more in its first turn, B 4 to 8, A 4 to 12, B."""
    messages = [Message(0, 0, 3), Message(1, 1, 6), Message(3, 0, 5)]
    assert play(Packets(4), messages, [[0], [0]], [1]) == [(0, 3), (2, 12), (1, 14)]


def test_a_stream_that_pauses_loses_its_turn() -> None:
    """As above, but A's second message comes at 4: B has 4 by 7, A 4 by 11, B 2 by 13, A 1."""
    messages = [Message(0, 0, 3), Message(1, 1, 6), Message(4, 0, 5)]
    assert play(Packets(4), messages, [[0], [0]], [1]) == [(0, 3), (1, 13), (2, 14)]


def test_a_narrow_port_limits_a_stream_and_others_have_the_rest() -> None:
    """Port 0 has 4/ps, of which A's own port takes 1: B and C take turns of 6 at 3/ps.

    B 6, C 6, B 6, C 6: 6 and 8 ps. A has 8 bytes after 8 ps.
    """
    messages = [Message(0, 0, 8), Message(0, 1, 12), Message(0, 2, 12)]
    assert play(Packets(6), messages, [[0, 1], [0], [0]], [4, 1]) == [(1, 6), (0, 8), (2, 8)]


def test_a_burst_is_not_faster_than_the_narrowest_port() -> None:
    """Two streams at 4/ps of port 0: A's turn of 2 takes 0.5 ps, but its own port has 2/ps: 1."""
    messages = [Message(0, 0, 2), Message(0, 1, 6)]
    assert play(Packets(2), messages, [[0, 1], [0]], [4, 2]) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("quantum", [1, 7, 10**6])
def test_alone_a_message_takes_what_it_takes(quantum: int) -> None:
    assert play(Packets(quantum), [Message(3, 0, 1000)], [[0, 1]], [4, 2]) == [(0, 503)]


@st.composite
def one_port(draw: st.DrawFn) -> list[Message]:
    """Messages of up to four streams, each after the one before has ended, whatever happens."""
    messages = []
    for stream in range(draw(st.integers(1, 4))):
        at = 0
        for _ in range(draw(st.integers(1, 3))):
            at += draw(st.integers(0, 60))
            size = draw(st.integers(1, 60))
            messages.append(Message(at, stream, float(size)))
            at += 1000
    return sorted(messages, key=lambda each: each.at)


@settings(deadline=None, max_examples=200)
@given(one_port(), st.integers(1, 3))
def test_an_endless_quantum_is_first_come_first_served(
    messages: list[Message], bandwidth: int
) -> None:
    got = dict(play(Packets(1e9), messages, [[0]] * 4, [bandwidth]))
    free = Fraction(0)
    for number, message in enumerate(messages):
        free = max(free, Fraction(message.at)) + Fraction(message.demand) / bandwidth
        assert got[number] == ceil(free - Fraction(1, 1024))


@settings(deadline=None, max_examples=200)
@given(one_port())
def test_a_quantum_of_next_to_nothing_is_max_min(messages: list[Message]) -> None:
    """Nobody is further from its fair share than by a quantum of each stream."""
    scaled = [
        Message(1000 * message.at, message.route, 1000 * message.demand) for message in messages
    ]
    fair = dict(play("fair", scaled, [[0]] * 4, [1]))
    in_turn = dict(play(Packets(1), scaled, [[0]] * 4, [1]))
    for number, end in fair.items():
        assert abs(in_turn[number] - end) <= 4 * len(messages)


@st.composite
def several_ports(draw: st.DrawFn) -> tuple[list[Message], list[list[int]], list[int], int]:
    """Messages of streams over one or two ports; those of one stream may follow at once."""
    places = st.lists(st.integers(0, PORTS - 1), unique=True, min_size=1, max_size=2)
    ways = draw(st.lists(places, min_size=1, max_size=5))
    capacity = [draw(st.sampled_from([1, 2, 4])) for _ in range(PORTS)]
    instants = sorted(draw(st.lists(st.integers(0, 60), min_size=1, max_size=8)))
    messages = [
        Message(at, draw(st.integers(0, len(ways) - 1)), float(draw(st.integers(1, 50))))
        for at in instants
    ]
    return messages, ways, capacity, draw(st.sampled_from([1, 3, 8, 1000]))


@settings(deadline=None, max_examples=400)
@given(several_ports())
def test_ends_are_those_of_turns_played_one_by_one(
    case: tuple[list[Message], list[list[int]], list[int], int],
) -> None:
    messages, ways, capacity, quantum = case
    asked = [Asked(message.at, message.route, int(message.demand)) for message in messages]
    expected = ends_of(asked, binding_routes(ways, capacity), capacity, quantum)
    assert dict(play(Packets(quantum), messages, ways, capacity)) == expected


def test_streams_that_others_limit_leave_their_places() -> None:
    """Port 0 has 4/ps, port 1 has 2/ps, turns of 6. A passes both, B port 0, C port 1.

    A and B meet at port 0 at first: A 6 bytes to 1.5 ps, B from then on. At 3, when B has 6 too, C
    comes: A has 1/ps of port 1 from now on, stands there before C as its request is older, and
    port 0 has 3/ps for B alone, whose last 6 bytes take 2 ps. At port 1 A has its last 4 bytes, at
    2/ps: to 5 ps; C its 4 to 7 ps.
    """
    messages = [Message(0, 0, 10), Message(0, 1, 12), Message(3, 2, 4)]
    got = play(Packets(6), messages, [[0, 1], [0], [1]], [4, 2])
    assert got == [(0, 5), (1, 5), (2, 7)]
