"""Where walkers meet: queues, resources, barriers. All are first come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from types import TracebackType, coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.engine.simulator import Simulator
    from paracosm.engine.walker import Continuation

__all__ = ["Barrier", "Queue", "Resource"]

Item = TypeVar("Item")


class Queue(Generic[Item]):
    """Items in the order in which they were put; walkers get them in the order in which they came.

    An item goes straight to the first walker that waits, and a walker that is interrupted or
    cancelled while it waits is forgotten, so no item is lost. All operations are O(1).

    Args:
        sim: the simulation that it belongs to.
        capacity: how many items it holds; no limit by default.
        name: for the report of a deadlock.

    Raises:
        InputError: the capacity is below 1.
    """

    __slots__ = ("_getters", "_items", "_putters", "_sim", "capacity", "name")

    def __init__(self, sim: Simulator, capacity: int | None = None, name: str = "a queue") -> None:
        if capacity is not None and capacity < 1:
            raise InputError(f"queue: the capacity must be 1 or more, not {capacity}")
        self._sim = sim
        self.capacity = capacity
        self.name = name
        self._items: deque[Item] = deque()
        self._getters: deque[Continuation] = deque()
        self._putters: deque[tuple[Continuation, Item]] = deque()

    def __len__(self) -> int:
        """How many items are in the queue."""
        return len(self._items)

    def put_nowait(self, item: Item) -> None:
        """Put an item.

        Raises:
            InputError: the queue is full; `await put(item)` waits for room.
        """
        if self._getters:
            continuation = self._getters.popleft()
            continuation.place = None
            self._sim._ready.append((continuation, item))
        elif self.capacity is None or len(self._items) < self.capacity:
            self._items.append(item)
        else:
            raise InputError(f"{self.name} is full: await put(item) to wait for room")

    @coroutine
    def put(self, item: Item) -> Generator[None, Any, None]:
        """Put an item, as soon as there is room."""
        if self._getters or self.capacity is None or len(self._items) < self.capacity:
            self.put_nowait(item)
            return
        continuation = self._sim._running()
        continuation.place = self
        self._putters.append((continuation, item))
        yield

    @coroutine
    def get(self) -> Generator[None, Any, Item]:
        """Take the first item, as soon as there is one."""
        items = self._items
        if items:
            item = items.popleft()
            if self._putters:
                self._admit()
            return item
        continuation = self._sim._current or self._sim._running()
        continuation.place = self
        self._getters.append(continuation)
        item = yield
        return item

    def get_nowait(self) -> Item:
        """Take the first item.

        Raises:
            InputError: the queue is empty; `await get()` waits for an item.
        """
        if not self._items:
            raise InputError(f"{self.name} is empty: await get() to wait for an item")
        item = self._items.popleft()
        if self._putters:
            self._admit()
        return item

    def _admit(self) -> None:
        """Let the first walker put its item that waits for room."""
        continuation, item = self._putters.popleft()
        self._items.append(item)
        continuation.place = None
        self._sim._ready.append((continuation, None))

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""
        if continuation in self._getters:
            self._getters.remove(continuation)
        else:
            self._putters = deque(put for put in self._putters if put[0] is not continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return what that walker waits for."""
        what = "an item of" if continuation in self._getters else "room in"
        return f"{what} {self.name}"


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
