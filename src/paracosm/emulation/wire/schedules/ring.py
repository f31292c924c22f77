"""gloo's rings: each member passes on, `lag` messages later, what it has received.

All-reduce and reduce go from each rank to the one before it with `lag` segments per rank
(gloo/allreduce.cc, reduce.cc); all-gather goes to the one after it in halves: `lag` 2
(gloo/allgather.cc). A message that a real member receives has therefore come through all emulated
members on its way from the last real one, or from the emulated one that it began with: all their
messages merge into one column of hops (the paper's figure 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paracosm.emulation.wire.schedules.schedule import Members

__all__ = ["Origin", "Ring"]

_SHORT = 12  # hops up to which plain numbers are faster than arrays


@dataclass(frozen=True, slots=True)
class Origin:
    """A member, and the index of what it sends."""

    member: int
    index: int


class Ring:
    """A ring of real and emulated members.

    Args:
        members: who takes part.
        step: +1 where each sends to the next rank, -1 where to the one before.
        lag: messages of a member's own before it passes on what it received.
        rounds: how many times all data goes round: 2 in an all-reduce, which first adds up.
    """

    def __init__(self, members: Members, step: int, lag: int, rounds: int) -> None:
        self._members = members
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
        """Return whether the two are neighbours in the ring's direction."""
        return (target - source - self._step) % self._members.size == 0

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Learn that message `index` has come to the first emulated member of an arc."""
        self._fed[real].arrived[index] = now

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return when the last emulated member of an arc has what it sends as `index`."""
        return self._arcs[real].ready(index, size, self.lag)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return when `peer` comes: the real member announces no more than two at a time."""
        return self._members.entry(peer)

    def is_part(self, source: int, target: int, index: int) -> bool:
        """Return whether a message does not belong to the ring; see `RingReduce`."""
        return False

    def comes_back(self, real: int, index: int) -> bool:
        """Return whether a real member's message is passed on to a real member (or itself)."""
        messages = self._rounds * (self._members.size - 1) * self.lag
        return index + self._fed[real].length * self.lag < messages

    def origin(self, real: int, index: int) -> Origin:
        """Return where a message began that a real member receives, as far as emulated ones go."""
        arc = self._arcs[real]
        ago = index // self.lag
        if ago < arc.length:
            return Origin(arc.inside[arc.length - 1 - ago], index % self.lag)
        return Origin(arc.source, index - arc.length * self.lag)

    def passed_at(self, peer: int, index: int, size: int) -> float | None:
        """Return when the real member's message `index` has come to an emulated one of its arc."""
        return self._around(peer).passed(peer, index, size)

    def source_of(self, peer: int) -> int:
        """Return the last real member before an emulated one."""
        return self._around(peer).source

    def _around(self, peer: int) -> _Arc:
        return next(arc for arc in self._arcs.values() if peer in arc.place)


class _Arc:
    """The emulated members between two real ones (which may be one and the same).

    Attributes:
        source: the real member that it receives from.
        inside: the emulated ones, in the ring's direction.
        length: how many.
        place: by member, how many emulated ones are before it.
        arrived: by index, when the first member had a message of the real one's.
    """

    def __init__(self, members: Members, step: int, target: int) -> None:
        inside = []
        member = (target - step) % members.size
        while not members.is_real(member):
            inside.append(member)
            member = (member - step) % members.size
        inside.reverse()
        self.inside = inside
        self._members = members
        self.source = member
        self.length = len(inside)
        self.place = {one: i for i, one in enumerate(inside)}
        self.arrived: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self._free: list[float] | NDArray[np.float64] | None = None
        self._times: tuple[int, NDArray[np.float64], NDArray[np.float64]] | None = None

    def ready(self, index: int, size: int, lag: int) -> float | None:
        """Return when the last member may send message `index`; asked in order."""
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
        """Return when a message of the real one's had come to a member."""
        at = self.arrived.get(index)
        if at is None:
            return None
        for source in self.inside[: self.place[member]]:
            target = self.inside[self.place[source] + 1]
            at += self._members.hop(source, target, size)
        return at

    def _through(self, origin: int, began: float, size: int) -> float:
        """Take a message over the hops from `origin` to the last member.

        Each link carries one message at a time: start = max(here, link free), free = start + busy,
        there = free + latency.
        """
        if origin == self.length - 1:
            return began
        if self.length <= _SHORT:
            return self._step_by_step(origin, began, size)
        if self._free is None:
            self._free = np.array([self._members.entry(one) for one in self.inside[:-1]])
        free = self._free
        assert isinstance(free, np.ndarray)
        if self._times is None or self._times[0] != size:
            hops = zip(self.inside, self.inside[1:], strict=False)
            latency, busy = np.array([self._members.split(*ends, size) for ends in hops]).T
            self._times = size, latency + busy, busy
        _, hop, busy = self._times
        begin = np.concatenate(([0.0], np.cumsum(hop[origin:-1])))
        latest = np.maximum(free[origin:] - begin, began)
        start = begin + np.maximum.accumulate(latest)
        free[origin:] = start + busy[origin:]
        return float(start[-1] + hop[-1])

    def _step_by_step(self, origin: int, began: float, size: int) -> float:
        if self._free is None:
            self._free = [self._members.entry(one) for one in self.inside[:-1]]
        free = self._free
        for place in range(origin, self.length - 1):
            latency, busy = self._members.split(self.inside[place], self.inside[place + 1], size)
            free[place] = max(began, free[place]) + busy
            began = free[place] + latency
        return began
