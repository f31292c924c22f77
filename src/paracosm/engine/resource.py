"""A resource that a limited number of walkers can hold at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from types import TracebackType, coroutine
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.engine.simulator import Simulator
    from paracosm.engine.walker import Continuation

__all__ = ["Resource"]


class Resource:
    """`capacity` places; who comes when all are taken waits, first come, first served.

        async with resource:
            await self.sleep(1.0)

    A place is handed on directly: nobody who comes later can slip in between. O(1).

    Args:
        sim: the simulation that it belongs to.
        capacity: how many may hold it at a time.
        name: for the report of a deadlock.

    Raises:
        InputError: the capacity is below 1.
    """

    __slots__ = ("_sim", "_waiting", "capacity", "held", "name")

    def __init__(self, sim: Simulator, capacity: int = 1, name: str = "a resource") -> None:
        if capacity < 1:
            raise InputError(f"resource: the capacity must be 1 or more, not {capacity}")
        self._sim = sim
        self.capacity = capacity
        self.name = name
        self.held = 0
        self._waiting: deque[Continuation] = deque()

    @coroutine
    def acquire(self) -> Generator[None, Any, None]:
        """Take a place, as soon as there is one."""
        if self.held < self.capacity:
            self.held += 1
            return
        continuation = self._sim._running()
        continuation.place = self
        self._waiting.append(continuation)
        yield

    def release(self) -> None:
        """Give a place back.

        Raises:
            InputError: nobody holds one.
        """
        if not self.held:
            raise InputError(f"{self.name} was released more often than it was acquired")
        if self._waiting:
            continuation = self._waiting.popleft()
            continuation.place = None
            self._sim._ready.append((continuation, None))
        else:
            self.held -= 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""
        self._waiting.remove(continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return what that walker waits for."""
        return self.name
