"""The memory of a recording: what tensors hold, and what PyTorch's allocator reserves for it.

The caching allocator takes memory from the device in segments, gives tensors blocks of them, and
keeps what they free (c10/cuda/CUDACachingAllocator.cpp). Blocks of up to 1 MiB come from segments
of 2 MiB; larger ones from segments of 20 MiB, or from 10 MiB on from segments of their own size,
rounded up to 2 MiB. A block is the smallest free one of its stream that fits; what is left of it is
split off, of a small segment from 512 bytes on, of a large one from more than 1 MiB on. Free
neighbours are joined. Each stream has blocks of its own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from paracosm.arrays import Ints
from paracosm.emulation.device.recording import MEMORY, Recording

_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_LARGE_SEGMENT = 20 << 20
_OWN_SEGMENT = 10 << 20
_ROUNDED = 2 << 20
_LEAST_REST = 512

CONTEXT = 512 << 20
"""Bytes that CUDA and its libraries take of the device before any tensor: assumed."""

NCCL_BUFFERS = 256 << 20
"""Bytes that NCCL takes for its channels where there is more than one rank: assumed."""

TIGHT = 0.92
"""Share of the device's memory from which on a job may not fit, by what is not modelled."""


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one rank."""

    allocated: int  # bytes that tensors hold at most in the last iteration
    by_kind: Mapping[str, int]  # of these, by `MEMORY`, the largest first
    reserved: int  # bytes that the allocator holds at most, since the beginning
    overhead: int  # bytes of CUDA and NCCL

    @property
    def total(self) -> int:
        return self.reserved + self.overhead

    def verdict(self, capacity: int) -> str:
        """Say whether it is within a device's memory: "fits", "tight" or "does not fit"."""
        if self.total > capacity:
            return "does not fit"
        return "tight" if self.total > TIGHT * capacity else "fits"


def memory_use(recording: Recording) -> MemoryUse:
    steps = recording.steps
    first = int(steps[-2]) + 1 if len(steps) > 1 else 0
    held = held_by_kind(recording)
    total = held.sum(axis=0)
    is_gpu = recording.context is None
    at = first + int(np.argmax(total[first:])) if len(total) > first else 0
    by_kind = {kind: int(held[code, at]) for code, kind in enumerate(MEMORY) if held[code, at]}
    return MemoryUse(
        allocated=int(total[at]) if len(total) else 0,
        by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        reserved=reserved_bytes(recording) if is_gpu else int(total.max(initial=0)),
        overhead=CONTEXT * is_gpu + (NCCL_BUFFERS if recording.world_size > 1 else 0),
    )


def held_by_kind(recording: Recording) -> Ints:
    """Return the bytes that tensors hold by kind of memory and request, shape (kinds, n)."""
    count, storages = len(recording), recording.storages
    held = np.zeros((len(MEMORY), count + 1), dtype=np.int64)
    np.add.at(held, (storages.kind, storages.first), storages.size)
    np.subtract.at(held, (storages.kind, np.minimum(storages.last + 1, count)), storages.size)
    return np.cumsum(held, axis=1)[:, :count]


def reserved_bytes(recording: Recording) -> int:
    """Return the most bytes that the caching allocator holds for a recording."""
    storages = recording.storages
    pools: dict[tuple[int, bool], _Pool] = {}
    events = [
        *((int(row), 1, number) for number, row in enumerate(storages.first.tolist())),
        *((int(row), 0, number) for number, row in enumerate((storages.last + 1).tolist())),
    ]
    blocks: dict[int, tuple[_Pool, _Block]] = {}
    sizes, streams = storages.size.tolist(), storages.stream.tolist()
    count = len(recording)
    for row, is_begin, number in sorted(events):
        if is_begin:
            size = sizes[number]
            pool = pools.setdefault((streams[number], size <= _SMALL), _Pool(size <= _SMALL))
            blocks[number] = pool, pool.take(size)
        elif row <= count and number in blocks:
            pool, block = blocks.pop(number)
            pool.free(block)
    return sum(pool.reserved for pool in pools.values())


@dataclass(eq=False)
class _Block:
    size: int
    before: _Block | None = None
    after: _Block | None = None
    is_free: bool = False


@dataclass(eq=False)
class _Pool:
    """The segments of one stream, for small or for large blocks."""

    is_small: bool
    reserved: int = 0
    _free: list[tuple[int, int, _Block]] = field(default_factory=list)  # by size

    def take(self, size: int) -> _Block:
        place = bisect_left(self._free, (size, -1), key=lambda entry: entry[:2])
        if place < len(self._free):
            block = self._free.pop(place)[2]
            block.is_free = False
        else:
            block = _Block(self._segment(size))
            self.reserved += block.size
        rest = block.size - size
        if rest >= _LEAST_REST if self.is_small else rest > _SMALL:
            left = _Block(rest, block, block.after)
            if left.after is not None:
                left.after.before = left
            block.size, block.after = size, left
            self._keep(left)
        return block

    def free(self, block: _Block) -> None:
        for neighbour in (block.before, block.after):
            if neighbour is None or not neighbour.is_free:
                continue
            self._free.remove((neighbour.size, id(neighbour), neighbour))
            first, second = (neighbour, block) if neighbour is block.before else (block, neighbour)
            first.size += second.size
            first.after = second.after
            if first.after is not None:
                first.after.before = first
            block = first
        self._keep(block)

    def _keep(self, block: _Block) -> None:
        block.is_free = True
        insort(self._free, (block.size, id(block), block), key=lambda entry: entry[:2])

    def _segment(self, size: int) -> int:
        if self.is_small:
            return _SMALL_SEGMENT
        if size < _OWN_SEGMENT:
            return _LARGE_SEGMENT
        return -(-size // _ROUNDED) * _ROUNDED
