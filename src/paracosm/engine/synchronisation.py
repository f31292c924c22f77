"""What processes share: queues of items, resources and barriers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from numbers import Integral
from types import TracebackType, coroutine
from typing import Any, Generic, TypeVar

from paracosm.engine.processes import Continuation, Scheduler, WaitQueue
from paracosm.errors import InputError, shown

Item = TypeVar("Item")


class Queue(WaitQueue, Generic[Item]):
    """Items in the order in which they were put, for processes in the order in which they came.

    An item goes straight to the first process that waits, and processes that are interrupted or
    cancelled are removed, so no item is lost. All operations are O(1). It holds `capacity` items at
    most, by default without limit.
    """

    __slots__ = ("_getters", "_items", "_putters", "capacity")

    def __init__(self, sim: Scheduler, capacity: int | None = None, name: str = "a queue") -> None:
        super().__init__(sim, name)
        self.capacity = None if capacity is None else _count("queue: the capacity", capacity)
        self._items: deque[Item] = deque()
        self._getters: deque[Continuation] = deque()
        self._putters: deque[tuple[Continuation, Item]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put_nowait(self, item: Item) -> None:
        """Put an item; `InputError` if the queue is full."""
        if self._getters:
            continuation = self._getters.popleft()
            continuation.wait_queue = None
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
        continuation.wait_queue = self
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
        continuation.wait_queue = self
        self._getters.append(continuation)
        item = yield
        return item

    def get_nowait(self) -> Item:
        """Take the first item; `InputError` if the queue is empty."""
        if not self._items:
            raise InputError(f"{self.name} is empty: await get() to wait for an item")
        item = self._items.popleft()
        if self._putters:
            self._admit()
        return item

    def _admit(self) -> None:
        continuation, item = self._putters.popleft()
        self._items.append(item)
        continuation.wait_queue = None
        self._sim._ready.append((continuation, None))

    def remove(self, continuation: Continuation) -> None:
        if continuation in self._getters:
            self._getters.remove(continuation)
        else:
            self._putters = deque(put for put in self._putters if put[0] is not continuation)

    def describe(self, continuation: Continuation) -> str:
        wanted = "an item of" if continuation in self._getters else "room in"
        return f"{wanted} {self.name}"


class Resource(WaitQueue):
    """`capacity` places; processes that find all taken wait, first come, first served.

        async with resource:
            await self.sleep(1.0)

    A place is handed on directly: nobody who comes later can overtake. O(1).
    """

    __slots__ = ("capacity", "held")

    _waiting: deque[Continuation]

    def __init__(self, sim: Scheduler, capacity: int = 1, name: str = "a resource") -> None:
        super().__init__(sim, name)
        self.capacity = _count("resource: the capacity", capacity)
        self.held = 0
        self._waiting = deque()

    @coroutine
    def acquire(self) -> Generator[None, Any, None]:
        """Take a place, as soon as there is one."""
        if self.held < self.capacity:
            self.held += 1
            return
        continuation = self._sim._running()
        continuation.wait_queue = self
        self._waiting.append(continuation)
        yield

    def release(self) -> None:
        """Give a place back; `InputError` if nobody holds one."""
        if not self.held:
            raise InputError(f"{self.name} was released more often than it was acquired")
        if self._waiting:
            continuation = self._waiting.popleft()
            continuation.wait_queue = None
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


class Barrier(WaitQueue):
    """Holds processes until `parties` of them have arrived, then releases all, and starts again.

    They continue at that instant: the last one first, who never stops, then the others in order.
    """

    __slots__ = ("parties",)

    _waiting: list[Continuation]

    def __init__(self, sim: Scheduler, parties: int, name: str = "a barrier") -> None:
        super().__init__(sim, name)
        self.parties = _count("barrier: the number of parties", parties)
        self._waiting = []

    @coroutine
    def wait(self) -> Generator[None, Any, int]:
        """Wait for the others, and return how many arrived earlier: 0 for the first."""
        position = len(self._waiting)
        if position + 1 == self.parties:
            for continuation in self._waiting:
                continuation.wait_queue = None
                self._sim._ready.append((continuation, None))
            self._waiting.clear()
        else:
            continuation = self._sim._running()
            continuation.wait_queue = self
            self._waiting.append(continuation)
            yield
        return position

    def describe(self, continuation: Continuation) -> str:
        return f"{self.name} ({len(self._waiting)} of {self.parties} are there)"


def _count(quantity: str, value: Any) -> int:
    """Return `value`, if it is a whole number, 1 or more."""
    if not isinstance(value, Integral) or value < 1:
        raise InputError(f"{quantity} must be a whole number, 1 or more, not {shown(value)}")
    return int(value)
