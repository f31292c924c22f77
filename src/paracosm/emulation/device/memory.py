"""The memory of a device that is not there: all storages of tensors, by what they are for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from paracosm.emulation.device.recording import MEMORY

BLOCK = 512  # bytes to which PyTorch's caching allocator rounds (CUDACachingAllocator.cpp)


class DeviceMemory:
    """Follows storages from the request that makes them to the end of their last tensor."""

    def __init__(self, requests: Callable[[], int], stream: Callable[[], int]) -> None:
        self.allocated = 0  # bytes
        self.highest = 0  # since the script last reset it
        self._requests = requests  # how many there were
        self._stream = stream  # the current one
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
        entry = self._begin(storage.nbytes(), MEMORY.index(kind))
        entry.reference = weakref.ref(storage, lambda _: self._freed(key, entry))
        self._storages[key] = entry

    def call(self, tensors: Iterable[torch.Tensor], kind: str) -> None:
        """Say what tensors are for, once that is known: a gradient, the state of an optimizer."""
        for tensor in tensors:
            entry = self._storages.get(tensor.untyped_storage()._cdata)
            if entry is not None:
                entry.kind = MEMORY.index(kind)

    def alive(self) -> Iterator[tuple[torch.UntypedStorage, str]]:
        """Yield the storages that there are, each with what it is for."""
        for entry in list(self._storages.values()):
            if (storage := entry.reference()) is not None:
                yield storage, MEMORY[entry.kind]

    def reset_highest(self) -> None:
        self.highest = self.allocated

    @property
    def count(self) -> int:
        """How many storages there are."""
        return len(self._storages)

    def hold(self, size: int, kind: str) -> _Storage:
        """Hold memory for no tensor, until `release`."""
        return self._begin(size, MEMORY.index(kind))

    def release(self, held: _Storage) -> None:
        self._end(held)

    def storages(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield all that there were: size, first and last request, kind and stream."""
        for entry in self._all:
            last = self._requests() if entry.last < 0 else entry.last
            if entry.size and last >= entry.first:
                yield entry.size, entry.first, last, entry.kind, entry.stream

    def _begin(self, size: int, kind: int) -> _Storage:
        entry = _Storage(_rounded(size), kind, self._requests(), self._stream())
        self._all.append(entry)
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

    def _resized(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        entry = self._storages.get(key)
        if entry is None or entry.reference() is not storage:
            return
        self._end(entry)
        new = self._begin(storage.nbytes(), entry.kind)
        new.reference = weakref.ref(storage, lambda _: self._freed(key, new))
        self._storages[key] = new


class _Storage:
    """One storage, from one request to another."""

    __slots__ = ("first", "kind", "last", "reference", "size", "stream")

    def __init__(self, size: int, kind: int, first: int, stream: int) -> None:
        self.size, self.kind, self.first, self.stream = size, kind, first, stream
        self.last = -1  # while it is alive
        self.reference: Any = None


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
