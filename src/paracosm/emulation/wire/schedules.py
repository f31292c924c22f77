"""gloo's collectives: when each emulated member may send and receive, without any socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Split = Callable[[int, int, int], tuple[float, float]]
"""(source, target, bytes) -> latency of a message, and the seconds for which it holds its link."""


@dataclass(frozen=True)
class Members:
    size: int
    real: tuple[int, ...]  # which are real
    entry: Callable[[int], float]  # when an emulated member comes (seconds of the clock)
    split: Split  # the times of messages among emulated members

    def is_real(self, member: int) -> bool:
        return member in self.real

    def hop(self, source: int, target: int, size: int) -> float:
        latency, busy = self.split(source, target, size)
        return latency + busy


class Direct:
    """One operation: the messages to real members, and what each of them waits for.

    Messages are counted from 0 per sender and receiver, in the order of gloo's algorithm. Here they
    wait only for their sender: gather, scatter and all-to-all, which gloo posts all at once
    (gloo/gather.cc, scatter.cc, alltoall.cc, alltoallv.cc).
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    def allows(self, source: int, target: int, index: int) -> bool:
        return source != target and index == 0

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Note that a message of a real member has arrived at an emulated one."""

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return the instant from which a message may go; None while it waits for another."""
        return self._members.entry(peer)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return the instant from which `peer` is ready to receive; None as above."""
        return self._members.entry(peer)


class Barrier(Direct):
    """gloo's barrier: dissemination in ceil(log2 W) rounds (gloo/barrier.cc).

    In round k a member sends to the one 2^k after it, receives from the one 2^k before it, and goes
    on when both are done.
    """

    def __init__(self, members: Members) -> None:
        super().__init__(members)
        self._arrived: dict[tuple[int, int], float] = {}  # (round, receiver) -> instant
        self._begun: dict[tuple[int, int], float] = {}  # (round, member) -> instant

    def allows(self, source: int, target: int, index: int) -> bool:
        apart = (target - source) % self._members.size
        return index == 0 and apart & (apart - 1) == 0 and apart > 0

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        self._arrived[self._round(real, peer), peer] = now

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        return self._begin(self._round(peer, real), peer)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        return self._begin(self._round(real, peer), peer)

    def _round(self, source: int, target: int) -> int:
        return ((target - source) % self._members.size).bit_length() - 1

    def _begin(self, number: int, member: int) -> float | None:
        if number == 0:
            return self._members.entry(member)
        known = self._begun.get((number, member))
        if known is not None:
            return known
        before = self._begin(number - 1, member)
        source = (member - (1 << (number - 1))) % self._members.size
        if self._members.is_real(source):
            came = self._arrived.get((number - 1, member))
        else:
            sent = self._begin(number - 1, source)
            came = None if sent is None else sent + self._members.hop(source, member, 0)
        if before is None or came is None:
            return None
        self._begun[number, member] = max(before, came)
        return self._begun[number, member]


def parent_in_broadcast(size: int, root: int, member: int) -> int | None:
    """Return the member that another one receives a broadcast from; None for the root.

    gloo's is a binomial tree (gloo/broadcast.cc): with v the rank counted from the root, v > 0
    receives from v without its highest bit, then sends to v + 2^i for all i above that bit.
    """
    virtual = (member - root) % size
    return None if virtual == 0 else (virtual - (1 << (virtual.bit_length() - 1)) + root) % size


def children_in_broadcast(size: int, root: int, member: int) -> list[int]:
    virtual = (member - root) % size
    above = range(virtual.bit_length(), (size - 1).bit_length())
    return [(virtual + (1 << i) + root) % size for i in above if virtual + (1 << i) < size]


class Broadcast(Direct):
    """gloo's broadcast: each member sends to its children what its parent has sent."""

    def __init__(self, members: Members, root: int) -> None:
        super().__init__(members)
        self.root = root
        self._arrived: dict[int, float] = {}
        self._here: dict[tuple[int, int], float] = {}  # (member, bytes) -> instant

    def allows(self, source: int, target: int, index: int) -> bool:
        return index == 0 and parent_in_broadcast(self._members.size, self.root, target) == source

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        self._arrived[peer] = now

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        return self._has(peer, size)

    def _has(self, member: int, size: int) -> float | None:
        entry = self._members.entry(member)
        parent = parent_in_broadcast(self._members.size, self.root, member)
        if parent is None:
            return entry
        known = self._here.get((member, size))
        if known is not None:
            return known
        if self._members.is_real(parent):
            came = self._arrived.get(member)
        else:
            sent = self._has(parent, size)
            came = None if sent is None else sent + self._members.hop(parent, member, size)
        if came is None:
            return None
        self._here[member, size] = max(entry, came)
        return self._here[member, size]


_SHORT = 12  # hops up to which plain numbers are faster than arrays


class Ring(Direct):
    """gloo's rings: each member passes on, `lag` messages later, what it has received.

    All-reduce and reduce go from each rank to the one before it (step -1) with `lag` segments per
    rank (gloo/allreduce.cc, reduce.cc); all-gather goes to the one after it in halves: `lag` 2
    (gloo/allgather.cc). All data goes round `rounds` times, twice in an all-reduce. So a message to
    a real member has passed all emulated members since the last real one, or since the emulated one
    that it began with: their messages merge into one column of hops (the paper's figure 3).
    """

    def __init__(self, members: Members, step: int, lag: int, rounds: int) -> None:
        super().__init__(members)
        self._step = step
        self.lag = lag
        self._rounds = rounds
        self._arcs: dict[int, _Arc] = {}
        self._fed: dict[int, _Arc] = {}  # by the real member at an arc's beginning
        for target in members.real:
            arc = _Arc(members, step, target)
            if arc.length:
                self._arcs[target] = arc
                self._fed[arc.source] = arc

    def allows(self, source: int, target: int, index: int) -> bool:
        return (target - source - self._step) % self._members.size == 0

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        self._fed[real].arrived[index] = now

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        return self._arcs[real].ready(index, size, self.lag)

    def is_part(self, source: int, target: int, index: int) -> bool:
        return False

    def returns_to(self, real: int, index: int) -> bool:
        messages = self._rounds * (self._members.size - 1) * self.lag
        return index + self._fed[real].length * self.lag < messages

    def origin(self, real: int, index: int) -> tuple[int, int]:
        """Return the member that a message to a real member began with, and its index there."""
        arc = self._arcs[real]
        ago = index // self.lag
        if ago < arc.length:
            return arc.inside[arc.length - 1 - ago], index % self.lag
        return arc.source, index - arc.length * self.lag

    def source_of(self, peer: int) -> int:
        return self._around(peer).source

    def _around(self, peer: int) -> _Arc:
        return next(arc for arc in self._arcs.values() if peer in arc.place)


class _Arc:
    """The emulated members between two real ones (or one real one, on both sides)."""

    def __init__(self, members: Members, step: int, target: int) -> None:
        inside = []
        member = (target - step) % members.size
        while not members.is_real(member):
            inside.append(member)
            member = (member - step) % members.size
        inside.reverse()
        self.inside = inside  # the emulated ones, in the ring's direction
        self._members = members
        self.source = member  # the real member that it receives from
        self.length = len(inside)
        self.place = {one: i for i, one in enumerate(inside)}
        self.arrived: dict[int, float] = {}  # by index, when the first had it of the real one
        self._ready: dict[int, float] = {}
        self._free: list[float] | NDArray[np.float64] | None = None
        # By bytes of a message: hops' times, how long they hold their links, and the way to each
        self._times: dict[int, tuple[float, NDArray[np.float64], NDArray[np.float64]]] = {}

    def ready(self, index: int, size: int, lag: int) -> float | None:
        known = self._ready.get(index)
        if known is not None:
            return known
        origin = self.length - 1 - index // lag  # which member it began with
        if origin < 0:
            began = self.arrived.get(index - self.length * lag)
            if began is None:
                return None
            origin = 0
        else:
            began = self._members.entry(self.inside[origin])
        came = self._through(origin, began, size)
        self._ready = {index: max(came, self._members.entry(self.inside[-1]))}
        return self._ready[index]

    def passed(self, member: int, index: int, size: int) -> float | None:
        at = self.arrived.get(index)
        if at is None:
            return None
        for source in self.inside[: self.place[member]]:
            target = self.inside[self.place[source] + 1]
            at += self._members.hop(source, target, size)
        return at

    def _through(self, origin: int, began: float, size: int) -> float:
        """Forward a message from `origin`: start = max(arrival, link free), plus latency."""
        if origin == self.length - 1:
            return began
        if self.length <= _SHORT:
            return self._step_by_step(origin, began, size)
        if self._free is None:
            self._free = np.array([self._members.entry(one) for one in self.inside[:-1]])
        free = self._free
        assert isinstance(free, np.ndarray)
        if size not in self._times:
            hops = zip(self.inside, self.inside[1:], strict=False)
            latency, busy = np.array([self._members.split(*ends, size) for ends in hops]).T
            hop = latency + busy
            way = np.concatenate(([0.0], np.cumsum(hop[:-1])))
            self._times[size] = float(hop[-1]), busy, way
        last, busy, way = self._times[size]
        start = free[origin:]  # in place: at first when each link is free, less the way to it
        begin = way[origin:] - way[origin]
        np.subtract(start, begin, out=start)
        start[0] = max(start[0], began)
        np.maximum.accumulate(start, out=start)
        np.add(start, begin, out=start)
        there = float(start[-1]) + last
        np.add(start, busy[origin:], out=start)
        return there

    def _step_by_step(self, origin: int, began: float, size: int) -> float:
        if self._free is None:
            self._free = [self._members.entry(one) for one in self.inside[:-1]]
        free = self._free
        for place in range(origin, self.length - 1):
            latency, busy = self._members.split(self.inside[place], self.inside[place + 1], size)
            free[place] = max(began, free[place]) + busy
            began = free[place] + latency
        return began


class RingReduce(Ring):
    """gloo's reduce: the first half of its ring all-reduce, then every part goes to the root.

    The parts are whole chunks of all segments of a rank (gloo/reduce.cc).
    """

    def __init__(self, members: Members) -> None:
        super().__init__(members, -1, 2, 1)
        self.count = 2 * members.size - 2  # messages of the ring
        self._last: dict[int, tuple[int, int]] = {}  # by real member: index, bytes

    def allows(self, source: int, target: int, index: int) -> bool:
        return super().allows(source, target, index) or index == 0

    def is_part(self, source: int, target: int, index: int) -> bool:
        return not super().allows(source, target, index) or index >= self.count

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        if not self.is_part(real, peer, index):
            super().arrived(real, peer, index, size, now)
            self._last[real] = index, size

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        if not self.is_part(peer, real, index):
            return super().send_at(peer, real, index, size)
        arc = self._around(peer)
        if arc.source not in self._last:
            return self._members.entry(peer)
        last, length = self._last[arc.source]
        # The last message of the ring to `peer` was this one where it left the real member.
        away = (arc.source - peer) % self._members.size
        return arc.passed(peer, min(last, self.count - 1 - (away - 1) * self.lag), length)
