"""The memory of a device that is not there: all storages of tensors, by what they are for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from paracosm.jobs.job import MEMORY
from paracosm.simulation.caching_allocator import LEAST, Block, CachingAllocator


class DeviceMemory:
    """Follows storages from the request that makes them to the end of their last tensor."""

    def __init__(
        self,
        requests: Callable[[], int],  # how many there were
        stream: Callable[[], int],  # the current one
        module: Callable[[], int],  # the code of that which is under way
        allocator: CachingAllocator,
    ) -> None:
        self.allocated = 0  # bytes
        self.highest = 0  # since the script last reset it
        self.allocator = allocator
        self._requests, self._stream, self._module = requests, stream, module
        self._storages: dict[int, _Storage] = {}
        self._all: list[_Storage] = []
        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            self._resized(storage)
            return result

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]

    def see(self, tensor: torch.Tensor, kind: str) -> None:
        """Count the storage of a tensor, if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._storages.get(key)
        if known is not None and known.reference() is storage:
            return
        if known is not None:
            self._freed(key, known)
        entry = self._begin(storage.nbytes(), MEMORY.index(kind), self._module())
        entry.reference = weakref.ref(storage, lambda _: self._freed(key, entry))
        self._storages[key] = entry

    def call(self, tensors: Iterable[Any], kind: str, module: int | None = None) -> None:
        """Say what tensors are for, once that is known: a gradient, the state of an optimizer."""
        for entry in self._of(tensors):
            entry.kind = MEMORY.index(kind)
            if module is not None:
                entry.module = module

    def read(self, tensors: Iterable[Any], is_compiled: bool) -> None:
        """Say that an op reads tensors; what compiled code made it frees after that."""
        for entry in self._of(tensors):
            entry.last_read = self._requests()
            entry.is_compiled |= is_compiled and entry.first == entry.last_read

    def hand_on(self, tensors: Iterable[Any], block: int) -> None:
        """Say which block of the model is given tensors, or returns them."""
        for entry in self._of(tensors):
            entry.handed_to = block

    def alive(self) -> Iterator[tuple[torch.UntypedStorage, str]]:
        """Yield the storages that there are, each with what it is for."""
        for entry in list(self._storages.values()):
            if (storage := entry.reference()) is not None:
                yield storage, MEMORY[entry.kind]

    def reset_highest(self) -> None:
        self.highest = self.allocated
        self.allocator.highest = self.allocator.reserved

    @property
    def count(self) -> int:
        """How many storages there are."""
        return len(self._storages)

    def hold(self, size: int, kind: str) -> _Storage:
        """Hold memory for no tensor, until `release`."""
        return self._begin(size, MEMORY.index(kind), self._module())

    def release(self, held: _Storage) -> None:
        self._end(held)

    def storages(self) -> Iterator[tuple[int, ...]]:
        """Yield all that there were, as columns of `recording.Storages`."""
        for entry in self._all:
            last = self._requests() if entry.last < 0 else entry.last
            if entry.is_compiled:
                last = min(last, entry.last_read)
            if entry.size and last >= entry.first:
                rest = entry.kind, entry.stream, entry.module, entry.handed_to, entry.last_read
                yield entry.size, entry.first, last, *rest

    def _of(self, tensors: Iterable[Any]) -> Iterator[_Storage]:
        for tensor in tensors:
            if isinstance(tensor, FakeTensor):
                entry = self._storages.get(tensor.untyped_storage()._cdata)
                if entry is not None:
                    yield entry
            elif is_traceable_wrapper_subclass(tensor):  # a DTensor holds its rank's own part
                names: Any = tensor.__tensor_flatten__()[0]
                yield from self._of([getattr(tensor, name) for name in names])

    def _begin(self, size: int, kind: int, module: int) -> _Storage:
        entry = _Storage(_rounded(size), kind, self._requests(), self._stream(), module)
        self._all.append(entry)
        if entry.size:
            entry.block = self.allocator.take(entry.size, entry.stream)
        self.allocated += entry.size
        self.highest = max(self.highest, self.allocated)
        return entry

    def _freed(self, key: int, entry: _Storage) -> None:
        if self._storages.get(key) is entry:
            del self._storages[key]
            self._end(entry)

    def _end(self, entry: _Storage) -> None:
        entry.last = self._requests() - 1
        self.allocated -= entry.size
        block, entry.block = entry.block, None
        if block is not None:
            self.allocator.free(block)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        entry = self._storages.get(key)
        if entry is None or entry.reference() is not storage:
            return
        self._end(entry)
        # Those that fully_shard gathers parameters into are emptied, and filled anew.
        entry.kind = MEMORY.index("collectives")
        new = self._begin(storage.nbytes(), entry.kind, entry.module)
        new.reference = weakref.ref(storage, lambda _: self._freed(key, new))
        self._storages[key] = new


class _Storage:
    """One storage, from one request to another."""

    __slots__ = (
        *("block", "first", "handed_to", "is_compiled", "kind", "last", "last_read"),
        *("module", "reference", "size", "stream"),
    )

    def __init__(self, size: int, kind: int, first: int, stream: int, module: int) -> None:
        self.size, self.kind, self.first, self.stream = size, kind, first, stream
        self.module = module
        self.last = -1  # while it is alive
        self.last_read = first
        self.handed_to = -1
        self.is_compiled = False
        self.block: Block | None = None
        self.reference: Any = None


def _rounded(size: int) -> int:
    return -(-size // LEAST) * LEAST
