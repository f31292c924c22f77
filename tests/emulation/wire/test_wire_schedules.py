"""When emulated members may send, against a literal play of every rank's part in gloo."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.emulation.wire.schedules import (
    Barrier,
    Broadcast,
    Direct,
    Members,
    Ring,
    children_in_broadcast,
    parent_in_broadcast,
)


@dataclass(frozen=True)
class World:
    """Ranks, when they come, and their links."""

    size: int
    real: tuple[int, ...]
    entries: tuple[float, ...]
    latencies: tuple[float, ...]  # of the link that leaves each rank
    rates: tuple[float, ...]  # seconds per byte of it

    def split(self, source: int, target: int, size: int) -> tuple[float, float]:
        return self.latencies[source], self.rates[source] * size

    @property
    def members(self) -> Members:
        return Members(self.size, self.real, lambda rank: self.entries[rank], self.split)


@st.composite
def worlds(draw: st.DrawFn, most: int = 24) -> World:
    size = draw(st.integers(2, most))
    real = draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=min(4, size - 1)))
    numbers = st.floats(0.0, 8.0)
    if draw(st.booleans()):  # all links alike, all ranks together
        numbers = st.just(draw(numbers))

    def one_each() -> tuple[float, ...]:
        return tuple(draw(st.lists(numbers, min_size=size, max_size=size)))

    return World(size, tuple(sorted(real)), one_each(), one_each(), one_each())


@given(worlds(), st.sampled_from([1, -1]), st.integers(1, 3), st.integers(1, 2), st.data())
@settings(max_examples=150, deadline=None)
def test_ring_is_as_if_every_rank_played_its_part(
    world: World, step: int, lag: int, rounds: int, data: st.DataObject
) -> None:
    parts = world.size * lag
    size = data.draw(st.lists(st.integers(0, 5), min_size=parts, max_size=parts))
    count = rounds * (world.size - 1) * lag

    def segment(rank: int, index: int) -> int:
        return (rank - step * (index // lag)) % world.size * lag + index % lag

    # Literally: in the order of time, each rank sends its own messages and passes on the others.
    ready: dict[tuple[int, int], float] = {}
    there: dict[tuple[int, int], float] = {}  # by receiver and index
    free = list(world.entries)
    for index in range(count):
        for rank in range(world.size):
            came = world.entries[rank] if index < lag else there[rank, index - lag]
            ready[rank, index] = max(came, world.entries[rank])
            after = (rank + step) % world.size
            latency, busy = world.split(rank, after, size[segment(rank, index)])
            free[rank] = max(free[rank], ready[rank, index]) + busy
            there[after, index] = free[rank] + latency

    ring = Ring(world.members, step, lag, rounds)
    for real in world.real:
        after = (real + step) % world.size
        if after not in world.real:
            for index in range(count):
                length = size[segment(real, index)]
                ring.arrived(real, after, index, length, there[after, index])
    for real in world.real:
        before = (real - step) % world.size
        if before not in world.real:
            for index in range(count):
                length = size[segment(before, index)]
                found = ring.send_at(before, real, index, length)
                assert found == pytest.approx(ready[before, index], rel=1e-12, abs=1e-9)


def test_ring_waits_for_the_message_that_it_passes_on() -> None:
    # Rank 0 of 3 sends to 2, which passes on to 1, which sends to 0: with one segment per rank
    # rank 0's message 0 comes back as message 2, one skipped hop (2 to 1) later.
    members = Members(3, (0,), lambda rank: 0.0, lambda source, target, size: (1.0, 0.5))
    ring = Ring(members, -1, 1, 2)
    assert ring.send_at(1, 0, 0, 8) == 0.0
    assert ring.send_at(1, 0, 1, 8) == 1.5
    assert ring.send_at(1, 0, 2, 8) is None
    ring.arrived(0, 2, 0, 8, 10.0)
    assert ring.send_at(1, 0, 2, 8) == 11.5


def test_a_slow_link_among_emulated_ranks_limits_the_rate() -> None:
    # 1 of 6 links takes 1 s of each message: messages leave behind it 1 s apart.
    members = Members(
        6, (0,), lambda rank: 0.0, lambda source, target, size: (0.0, float(source == 3))
    )
    ring = Ring(members, -1, 2, 2)
    found = [ring.send_at(1, 0, index, 8) for index in range(10)]
    assert found[4:] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_barrier_is_as_if_every_rank_played_its_part(world: World) -> None:
    size = world.size
    begun = [list(world.entries)]
    for number in range(math.ceil(math.log2(size))):
        now = begun[-1]
        begun.append(
            [
                max(now[rank], now[source] + world.latencies[source])
                for rank in range(size)
                for source in [(rank - (1 << number)) % size]
            ]
        )
    barrier = Barrier(world.members)
    pairs = [
        (number, real, (real + sign * (1 << number)) % size, sign)
        for number in range(len(begun) - 1)
        for real in world.real
        for sign in (1, -1)
    ]
    for number, real, peer, sign in pairs:
        if sign == 1 and peer not in world.real:
            there = begun[number][real] + world.latencies[real]
            barrier.arrived(real, peer, 0, 0, there)
    for number, real, peer, sign in pairs:
        if sign == -1 and peer not in world.real:
            assert barrier.send_at(peer, real, 0, 0) == pytest.approx(begun[number][peer])


def test_barrier_waits_for_the_real_rank() -> None:
    members = Members(4, (0,), lambda rank: 0.0, lambda source, target, size: (1.0, 0.0))
    barrier = Barrier(members)
    assert barrier.send_at(3, 0, 0, 0) == 0.0
    # In round 1 rank 2 sends to 0, after rank 1 has sent to it.
    assert barrier.send_at(2, 0, 0, 0) == 1.0
    # Rank 1 is ready for its own round 1 when rank 0's message has come.
    assert barrier.accept_at(2, 0, 0) == 1.0
    assert Barrier(members).send_at(3, 0, 0, 0) == 0.0


@given(worlds(), st.data())
@settings(max_examples=150, deadline=None)
def test_broadcast_is_as_if_every_rank_played_its_part(world: World, data: st.DataObject) -> None:
    size = world.size
    root = data.draw(st.sampled_from(world.real))
    here = {root: world.entries[root]}
    edges = []
    for virtual in range(1, size):
        parent = virtual - (1 << (virtual.bit_length() - 1))
        source, target = (parent + root) % size, (virtual + root) % size
        here[target] = max(
            world.entries[target], here[source] + sum(world.split(source, target, 3))
        )
        edges.append((source, target))
    broadcast = Broadcast(world.members, root)
    for source, target in sorted(edges, key=lambda edge: edge[0] != root):
        if source in world.real and target not in world.real:
            assert broadcast.allows(source, target, 0)
            there = here[source] + sum(world.split(source, target, 3))
            broadcast.arrived(source, target, 0, 3, there)
    for source, target in edges:
        if source not in world.real and target in world.real:
            assert broadcast.send_at(source, target, 0, 3) == pytest.approx(here[source])


@pytest.mark.parametrize(
    ("size", "root", "children"),
    [
        (4, 0, {0: [1, 2], 1: [3]}),
        (5, 3, {3: [4, 0, 2], 4: [1]}),  # counted from the root: 0 to 1, 2 and 4, 1 to 3
        (8, 0, {0: [1, 2, 4], 1: [3, 5], 2: [6], 3: [7]}),
        (1, 0, {}),
    ],
)
def test_the_tree_of_a_broadcast(size: int, root: int, children: dict[int, list[int]]) -> None:
    parents = {child: parent for parent, each in children.items() for child in each}
    for member in range(size):
        assert children_in_broadcast(size, root, member) == children.get(member, [])
        assert parent_in_broadcast(size, root, member) == parents.get(member)


def broadcast_from_0(members: Members) -> Broadcast:
    return Broadcast(members, 0)


@pytest.mark.parametrize("schedule", [Direct, Barrier, broadcast_from_0])
def test_no_second_message_on_a_pair(schedule: Callable[[Members], Direct]) -> None:
    members = Members(4, (0,), lambda rank: 0.0, lambda source, target, size: (0.0, 0.0))
    assert schedule(members).allows(0, 1, 0)
    assert not schedule(members).allows(0, 1, 1)


def test_members_that_do_not_exchange_messages() -> None:
    members = Members(8, (0,), lambda rank: 0.0, lambda source, target, size: (0.0, 0.0))
    assert not Ring(members, -1, 2, 2).allows(0, 1, 0)
    assert not Barrier(members).allows(0, 3, 0)
    assert not broadcast_from_0(members).allows(0, 6, 0)
    assert not broadcast_from_0(members).allows(3, 5, 0)  # 5 hears from 1


def test_direct_messages_wait_for_their_sender_alone() -> None:
    members = Members(3, (0,), lambda rank: 10.0 * rank, lambda source, target, size: (1.0, 0.0))
    assert Direct(members).send_at(2, 0, 0, 5) == 20.0
    assert Direct(members).accept_at(1, 0, 0) == 10.0
