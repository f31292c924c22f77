"""What messages take that are skipped, since both ends are emulated."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.emulation.cost import Communication
from paracosm.emulation.wire.measured_link import MeasuredLink

__all__ = ["Hops"]

_MOST = 100_000  # remembered answers


class Hops:
    """The time of one message between members of a group: a latency, and how long it holds a link.

    Args:
        communication: knows the time of a message on an idle link.
        members: global ranks by rank in the group.
        measured: what the real rank's link takes, where that is to count instead.
    """

    def __init__(
        self, communication: Communication, members: Sequence[int], measured: MeasuredLink | None
    ) -> None:
        self._communication = communication
        self._members = members
        self._measured = measured
        self._known: dict[tuple[int, int, int], tuple[float, float]] = {}

    def split(self, source: int, target: int, size: int) -> tuple[float, float]:
        """Return the latency and the busy time of a message, in seconds.

        The latter holds the link; so does a latency that is not pipelined.
        """
        if self._measured is not None:
            return self._measured.alpha, self._measured.beta * size
        key = source, target, size
        if key not in self._known:
            if len(self._known) > _MOST:
                self._known.clear()
            ends = self._members[source], self._members[target]
            self._known[key] = self._communication.split(*ends, size)
        return self._known[key]

    def whole(self, source: int, target: int, size: int) -> float:
        """Return the seconds of a message on an idle link."""
        return sum(self.split(source, target, size))
