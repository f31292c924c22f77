"""The time of messages: modelled, or measured on the real rank's own link."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from paracosm.cluster.link import Sharing
from paracosm.emulation.communication import Communication
from paracosm.emulation.cost import IN, OUT, Cost
from paracosm.emulation.ports import Ports
from paracosm.emulation.wire.answers import AnsweredPorts, Answers

_MOST = 100_000  # remembered answers


class Hops:
    def __init__(
        self, communication: Communication, members: Sequence[int], measured: MeasuredLink | None
    ) -> None:
        self._communication = communication
        self._members = members
        self._measured = measured
        self._known: dict[tuple[int, int, int], tuple[float, float]] = {}

    def split(self, source: int, target: int, size: int) -> tuple[float, float]:
        """Return latency and busy time of a message, seconds; unpipelined latency is busy time."""
        if self._measured is not None:
            return self._measured.alpha, self._measured.beta * size
        key = source, target, size
        if key not in self._known:
            if len(self._known) > _MOST:
                self._known.clear()
            cost = self.cost(source, target, size, source)
            self._known[key] = cost.fixed + cost.after, cost.busy
        return self._known[key]

    def cost(self, source: int, target: int, size: int, rank: int) -> Cost:
        if self._measured is not None:
            way = "nic" + (OUT if rank == source else IN)
            return Cost(0.0, self._measured.beta * size, way, self._measured.alpha)
        members = self._members
        return self._communication.message(members[source], members[target], size, members[rank])


_SMALL = 4096  # bytes: up to here a message is all latency
_LARGE = 65_536  # bytes: from here bandwidth shows
_WINDOW = 64  # messages that count


class MeasuredLink:
    """Seconds and seconds per byte of one message, fitted while messages pass.

    A message's time is from our being ready to receive it, once it was announced, until it has
    arrived: the time between neighbours with real gloo. `beta` is the lower quartile of the last
    large messages, since others may have shared the link.
    """

    def __init__(self) -> None:
        self.alpha = 0.0  # seconds of a small message: the median of the last
        self.beta = 0.0  # seconds per byte beyond that
        self._small: deque[float] = deque(maxlen=_WINDOW)
        self._large: deque[float] = deque(maxlen=_WINDOW)

    def took(self, size: int, seconds: float) -> None:
        if size <= _SMALL:
            self._small.append(seconds)
            self.alpha = _quantile(self._small, 0.5)
        elif size >= _LARGE:
            self._large.append(max(0.0, seconds - self.alpha) / size)
            self.beta = _quantile(self._large, 0.25)


def _quantile(values: deque[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


class Pace:
    """Delays messages to and from real members so that they take a link's modelled time."""

    def __init__(self, sharing: Sharing | None, answers: Answers | None) -> None:
        self.sharing = sharing  # of a link; None where messages take what they take
        self.answers = answers  # which share the links; None where all of them are Python's
        self._ports: dict[int, Ports | AnsweredPorts] = {}  # by global rank

    def ports(self, rank: int) -> Ports | AnsweredPorts | None:
        """Return the links of a real rank, by its global number; None if nothing is delayed."""
        if self.sharing is None:
            return None
        if rank not in self._ports:
            of_answers = None if self.answers is None else self.answers.ports(self.sharing)
            self._ports[rank] = of_answers or Ports(self.sharing)
        return self._ports[rank]
