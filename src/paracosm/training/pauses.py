"""Virtual time that goes on while the engine's clock stands still."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from paracosm.timeline import Timeline


class Clock:
    """Virtual time in one life of a job: the engine's, and the pauses so far."""

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, virtual: float) -> None:
        """Begin a life, on an engine at 0."""
        self._pauses: list[float] = []  # when on the engine's clock
        self._offsets = [virtual]

    def pause(self, engine: float, end: float) -> None:
        """Let the engine stand still until `end`, in virtual time."""
        self._pauses.append(engine)
        self._offsets.append(end - engine)

    def virtual(self, engine: float) -> float:
        """Return the virtual time of an instant after all pauses."""
        return engine + self._offsets[-1]

    def engine(self, virtual: float) -> float:
        """Return the same of the engine; before 0 where that was before the life."""
        return virtual - self._offsets[-1]

    def begin_of(self, engine: float) -> float:
        """Return the virtual time at which something began: after a pause at that instant."""
        return engine + self._offsets[bisect_right(self._pauses, engine)]

    def end_of(self, engine: float) -> float:
        """Return the virtual time at which something ended: before a pause at that instant."""
        return engine + self._offsets[bisect_left(self._pauses, engine)]


class PlacedTimeline(Timeline):
    """A timeline that takes spans of nodes on the engine's clock, and puts them in virtual time."""

    def __init__(self, inner: Timeline, clock: Clock, nodes: Sequence[str]) -> None:
        self.inner = inner
        self._clock = clock
        self._nodes = frozenset(nodes)

    @property
    def append(self) -> Callable[[tuple[str, str, str, float, float, int]], None]:
        return lambda span: self.span(*span)

    def span(
        self, node: str, resource: str, name: str, begin: float, end: float, flow: int = -1
    ) -> None:
        if node in self._nodes and begin < end:
            times = self._clock.begin_of(begin), self._clock.end_of(end)
            self.inner.span(node, resource, name, *times, flow)
