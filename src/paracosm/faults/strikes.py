"""Faults that strike the workers and servers of a training, in order of time."""

from collections.abc import Iterator, Sequence
from heapq import merge
from math import inf, prod
from typing import NamedTuple

import numpy as np

from paracosm.errors import InputError
from paracosm.faults.fault import Fault, OnNode, choose_processor, fault_times
from paracosm.faults.models import Lose, Slow, Stop
from paracosm.units import format_duration


class Strike(NamedTuple):
    """A fault begins; times in seconds of virtual time."""

    time: float
    node: str  # whom it strikes; "" for the messages of all
    fault: Fault

    @property
    def end(self) -> float:
        """When it is over; infinite where it never is."""
        model = self.fault.model
        assert isinstance(model, Stop | Slow | Lose)
        return self.time + model.duration


def check_strikes(fault: Fault, workers: int, servers: int) -> None:
    """Check that a training on so many workers and servers can have `fault`.

    Raises:
        InputError: a fault that no training can have, a node that it has not, a time at random
            without bounds.
    """
    if not isinstance(fault.model, Stop | Slow | Lose):
        raise InputError(
            f'fault "{fault}": training has stop, slow and lose, such as "stop(30s) on worker 3 '
            'at 10s"'
        )
    where = fault.where
    if where is not None and not isinstance(where, OnNode):
        raise InputError(f'fault "{fault}": training has workers and servers: write "on worker 3"')
    if where is not None and where.index >= (
        count := workers if where.kind == "worker" else servers
    ):
        there = f"there are {count}, from 0" if count else "there is none"
        raise InputError(f'fault "{fault}": no {where}; {there}')
    if fault.needs_horizon:
        raise InputError(
            f'fault "{fault}": its time is missing: write "at 10s", "at random(0s, 100s)" or '
            '"every 100s"'
        )


def strikes(
    faults: Sequence[tuple[Fault, np.random.Generator]],
    workers: Sequence[str],
    servers: Sequence[str],
) -> Iterator[Strike]:
    """Yield when which node is struck, ascending, maybe without end.

    Simultaneous strikes are in the order of the faults.

    Args:
        faults: accepted by `check_strikes`, each with a generator of its own.
        workers, servers: their names.
    """
    sources = (_strikes(fault, rng, workers, servers) for fault, rng in faults)
    return merge(*sources, key=lambda strike: strike.time)


def _strikes(
    fault: Fault, rng: np.random.Generator, workers: Sequence[str], servers: Sequence[str]
) -> Iterator[Strike]:
    where = fault.where
    names = servers if isinstance(where, OnNode) and where.kind == "server" else workers
    for time in fault_times(fault, None, rng):
        everybody = isinstance(fault.model, Lose) and where is None
        node = "" if everybody else names[choose_processor(where, len(names), rng)]
        yield Strike(time, node, fault)


_MOST_WORK = 300_000
"""Periods that may be looked at before the job has made progress: seconds on a processor."""


class Periods:
    """The periods for which faults last, looked up at instants that never decrease.

    Periods that are so short, or so many at a time, that looking them up takes longer than what
    they happen to end with an InputError. What counts is the work since `has_advanced` was called
    last.
    """

    def __init__(self, ascending: Iterator[Strike]) -> None:
        self._work = 0
        self._coming = ascending
        self._next = next(ascending, None)
        self._by_node: dict[str, list[Strike]] = {}
        self.begun = 0  # how many have begun by the latest instant that was looked at

    def has_advanced(self) -> None:
        """Note that the job has made progress."""
        self._work = 0

    def at(self, now: float, *nodes: str) -> list[Fault]:
        """Return the faults that affect any of the nodes at an instant."""
        self._fetch(now)
        lasting = (strike for node in nodes for strike in self._lasting(node, now))
        return [strike.fault for strike in lasting if strike.time <= now]

    def stretched(self, node: str, begin: float, work: float) -> float:
        """Return the seconds that `work` (seconds) takes a node which computes from `begin` on.

        In periods of `Slow`, the factors of simultaneous ones multiply; outside it is `work`.
        """
        now, left, spent = begin, work, 0.0
        self._fetch(now)
        self._lasting(node, begin)
        known = self._by_node.setdefault(node, [])
        strikes: list[Strike] = []  # those that are not over, of the `seen` first ones
        seen = 0
        while True:
            self._fetch(now)
            strikes = [strike for strike in (*strikes, *known[seen:]) if strike.end > now]
            seen = len(known)
            self._count(1 + len(strikes), now)
            factor = prod(_factor(strike) for strike in strikes if strike.time <= now)
            end = now + left * factor
            border = self._next_border(strikes, known, now, end)
            if border == end:
                return spent + left * factor
            spent += border - now
            left = max(0.0, left - (border - now) / factor)
            now = border

    def _next_border(
        self, own: Sequence[Strike], known: Sequence[Strike], now: float, end: float
    ) -> float:
        """Return when the next period begins or ends after `now`, or `end` if that is earlier.

        Periods are those in `own`, and those that will be added to the `known` ones.
        """
        next_border, seen = end, len(known)
        periods = own
        while True:
            borders = (
                border
                for period in periods
                for border in (period.time, period.end)
                if now < border < next_border
            )
            next_border = min(borders, default=next_border)
            if self._next is None or not self._next.time < next_border:
                return next_border
            self._fetch(self._next.time)  # not all up to the end, which may be far away
            periods = known[seen:]

    def _lasting(self, node: str, now: float) -> list[Strike]:
        """Return a node's known periods that are not over, forgetting the others."""
        known = self._by_node.get(node)
        if not known:
            return []
        self._count(len(known), now)
        if any(strike.end <= now for strike in known):
            known[:] = [strike for strike in known if strike.end > now]
        return known

    def _fetch(self, until: float) -> None:
        while self._next is not None and self._next.time <= until < inf:
            self._count(1, self._next.time)
            self._by_node.setdefault(self._next.node, []).append(self._next)
            self._next = next(self._coming, None)
            self.begun += 1

    def _count(self, work: int, now: float) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            fault = "" if self._next is None else f' "{self._next.fault}"'
            raise InputError(
                f"fault{fault}: the job makes no progress: {self.begun:,} periods have begun by "
                f"{format_duration(now)}: make them rarer or shorter"
            )


def _factor(strike: Strike) -> float:
    assert isinstance(strike.fault.model, Slow)
    return strike.fault.model.factor
