"""A barrier at which a number of walkers meet."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.engine.simulator import Simulator
    from paracosm.engine.walker import Continuation

__all__ = ["Barrier"]


class Barrier:
    """Holds walkers until `parties` of them have come, then lets all go on, and starts again.

    They go on at that instant: the last one first, who never stops, then the others as they came.

    Args:
        sim: the simulation that it belongs to.
        parties: how many meet.
        name: for the report of a deadlock.

    Raises:
        InputError: fewer than 1 party.
    """

    __slots__ = ("_sim", "_waiting", "name", "parties")

    def __init__(self, sim: Simulator, parties: int, name: str = "a barrier") -> None:
        if parties < 1:
            raise InputError(f"barrier: it needs 1 party or more, not {parties}")
        self._sim = sim
        self.parties = parties
        self.name = name
        self._waiting: list[Continuation] = []

    @coroutine
    def wait(self) -> Generator[None, Any, int]:
        """Wait for the others, and return how many had come before: 0 for the first."""
        position = len(self._waiting)
        if position + 1 == self.parties:
            for continuation in self._waiting:
                continuation.place = None
                self._sim._ready.append((continuation, None))
            self._waiting.clear()
        else:
            continuation = self._sim._running()
            continuation.place = self
            self._waiting.append(continuation)
            yield
        return position

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""
        self._waiting.remove(continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return what that walker waits for."""
        return f"{self.name} ({len(self._waiting)} of {self.parties} are there)"
