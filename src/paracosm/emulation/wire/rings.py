"""What the compiled answers ask of a group, and their operations as Python's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from paracosm.emulation.peers import Peers
from paracosm.emulation.ports import Span
from paracosm.emulation.wire.announcements import Vector
from paracosm.emulation.wire.answers import AnsweredPorts, Flow, Snapshot
from paracosm.emulation.wire.messages import GroupState
from paracosm.emulation.wire.operations import Channel, Entries, Operation, RealSide
from paracosm.emulation.wire.protocol import kind_of, tag_of
from paracosm.emulation.wire.schedules import Members


class Rings:
    """The `answers.Asked` of a group with one real member."""

    def __init__(
        self,
        state: GroupState,
        peers: Peers,
        added: Callable[[str], float],  # seconds by which a kind begins late
        ports: AnsweredPorts | None,  # of the real member; None where nothing is paced
        fail: Callable[[GroupState, Operation, str], None],
        ended: Callable[[], None],  # called after an operation, where members may be late
    ) -> None:
        self._state, self._peers, self._added = state, peers, added
        self._ports, self._fail, self.ended = ports, fail, ended

    def entries(self, kind: str, asked: float) -> Sequence[float]:
        """Return when the emulated members come, in the ring's direction."""
        entries = Entries(self._peers, self._state.members, asked, self._added(kind))
        return [entries.of(member) for member in self._inside(kind)]

    def hops(self, kind: str, size: int) -> Sequence[tuple[float, float]]:
        """Return the latency and the busy time of a message at each hop among emulated members."""
        inside = self._inside(kind)
        return [self._state.hops.split(*ends, size) for ends in pairwise(inside)]

    def paces(self, kind: str, size: int) -> Sequence[tuple[int, Flow]]:
        """Return what a message to the first emulated member, and one of the last, need."""
        assert self._ports is not None
        real, inside = self._state.group.real[0], self._inside(kind)
        ways = [(real, inside[0]), (inside[-1], real)]
        return [self._ports.need(*self._state.passage(*ends, size, real)) for ends in ways]

    def unexpected(self, connection: Any, snapshot: Snapshot, is_ours: bool, length: int) -> None:
        operation = as_operation(self._state, snapshot, self._peers)
        pair = connection.pair
        number = snapshot.asked if is_ours else snapshot.announced
        ends = (pair.emulated, pair.real) if is_ours else (pair.real, pair.emulated)
        index = operation.received_as(pair, number) if is_ours else operation.sent_as(pair, number)
        text = operation.unexpected(*ends, index, length)
        self._fail(self._state, operation, text or f"message {number} was one too many")

    def _inside(self, kind: str) -> list[int]:
        size, real = self._state.group.size, self._state.group.real[0]
        step = -1 if kind == "all_reduce" else 1
        return [(real + step * away) % size for away in range(1, size)]


def as_operation(state: GroupState, snapshot: Snapshot, peers: Peers) -> Operation:
    """Return an operation that is answered elsewhere as it stands, to be described."""
    real, kind = state.group.real[0], kind_of(snapshot.slot)
    vector = (
        Vector(snapshot.size, snapshot.element, bytes(snapshot.element))
        if snapshot.element
        else None
    )
    entries = Entries(peers, state.members, snapshot.asked_at, 0.0)
    members = Members(state.group.size, state.group.real, entries.of, state.hops.split)
    operation = Operation(kind, tag_of(snapshot.slot), snapshot.slot, members, entries, vector)
    side = RealSide(
        snapshot.asked_at, snapshot.number, snapshot.last, snapshot.sent, snapshot.received
    )
    operation.reals[real] = side
    for connection in state.connections:
        pair = connection.pair
        sends = operation.schedule.allows(real, pair.emulated, 0)
        receives = operation.schedule.allows(pair.emulated, real, 0)
        if sends or receives:
            channel = operation.channels[connection] = Channel(connection)
            if sends:
                channel.announced, channel.arrived = snapshot.announced, snapshot.arrived
                channel.accepted = snapshot.accepted
            if receives:
                channel.asked, channel.sent, channel.gone = (
                    snapshot.asked,
                    snapshot.begun,
                    snapshot.gone,
                )
            if snapshot.is_due:
                channel.due = Span(0, snapshot.asked_at, snapshot.last)
    return operation
