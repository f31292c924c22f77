"""What PyTorch's caching allocator reserves of a device for the blocks that it gives out.

It takes memory from the device in segments, gives out blocks of them, and keeps what is freed
(c10/cuda/CUDACachingAllocator.cpp). Blocks of up to 1 MiB come from segments of 2 MiB; larger ones
from segments of 20 MiB, or from 10 MiB on from segments of their own size, rounded up to 2 MiB. A
block is the smallest free one of its stream that fits, of equal ones that with the lowest address;
what is left of it is split off, of a small segment from 512 bytes on, of a large one from more than
1 MiB on. Free neighbours are joined. Each stream has blocks of its own. With expandable segments a
stream has one segment for small and one for large blocks, which grow by pages of 2 MiB and 20 MiB.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from paracosm.errors import InputError

MIB = 1 << 20
LEAST = 512  # bytes, to whose multiples sizes are rounded
_SMALL = 1 * MIB
_SMALL_SEGMENT = 2 * MIB
_LARGE_SEGMENT = 20 * MIB
_OWN_SEGMENT = 10 * MIB
_ROUNDED = 2 * MIB
_SEGMENT_ADDRESSES = 1 << 50  # more than the bytes of any segment

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Environment variables that hold the allocator's settings, the one that counts first."""


@dataclass(frozen=True)
class AllocatorSettings:
    """The settings of `VARIABLES` that change what is reserved; others are left out."""

    expandable: bool = False
    max_split: int | None = None  # bytes from which on blocks are not split
    divisions: int = 0  # of powers of two, to which sizes are rounded up; 0 where they are not


def parse_settings(text: str) -> AllocatorSettings:
    """Read "expandable_segments:True,max_split_size_mb:512,roundup_power2_divisions:8".

    Raises:
        InputError: a value that PyTorch would refuse, or one for each size.
    """
    values: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        key, colon, value = entry.partition(":")
        if colon:
            values[key.strip()] = value.strip()
    if values.get("backend", "native") != "native":
        raise InputError(f"the allocator {values['backend']} is not modelled: only native is")
    expandable = values.get("expandable_segments", "False")
    if expandable not in ("True", "False"):
        raise InputError(f"expandable_segments:{expandable}: expected True or False")
    return AllocatorSettings(
        expandable == "True",
        _number(values, "max_split_size_mb", MIB),
        _number(values, "roundup_power2_divisions", 1) or 0,
    )


def _number(values: dict[str, str], key: str, unit: int) -> int | None:
    if key not in values:
        return None
    if not values[key].isdigit():
        raise InputError(f"{key}:{values[key]}: expected a whole number")
    return int(values[key]) * unit


class CachingAllocator:
    """The blocks and segments of one device."""

    def __init__(self, settings: AllocatorSettings, limit: int | None = None) -> None:
        self._settings = settings
        self._limit = limit  # bytes of the device that it may take
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._segments = 0
        self.reserved = self.highest = 0  # bytes of segments: now, and at most
        self.retries = 0  # times that all unused segments were given back to make room for one
        self.failures = 0  # blocks for which there was no room then either, and that it got

    def take(self, size: int, stream: int) -> Block:
        size = self._rounded(size)
        key = stream, size <= _SMALL
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(*key)
        block = self._free_block(pool, size) or self._new_block(pool, size)
        self._map(block, size)
        self._split(pool, block, size)
        return block

    def free(self, block: Block) -> None:
        pool = block.pool
        for neighbour in (block.before, block.after):
            if neighbour is None or not neighbour.is_free:
                continue
            pool.remove(neighbour)
            first, second = (neighbour, block) if neighbour is block.before else (block, neighbour)
            first.size += second.size
            first.unmapped += second.unmapped
            first.after = second.after
            if first.after is not None:
                first.after.before = first
            if pool.last is second:
                pool.last = first
            block = first
        pool.keep(block)

    def release(self) -> None:
        """Give back what is not used, as `torch.cuda.empty_cache` does."""
        for pool in self._pools.values():
            for *_, block in list(pool.free):
                if self._settings.expandable:
                    page = _SMALL_SEGMENT if pool.is_small else _LARGE_SEGMENT
                    pages = (block.size - block.unmapped) // page * page
                    block.unmapped += pages
                    self.reserved -= pages
                elif block.before is None and block.after is None:
                    pool.remove(block)
                    self.reserved -= block.size

    def _rounded(self, size: int) -> int:
        divisions = self._settings.divisions
        if divisions > 1 and size > LEAST * divisions:
            step = (1 << (size.bit_length() - 1)) // divisions
            return -(-size // step) * step
        return max(-(-size // LEAST) * LEAST, LEAST)

    def _free_block(self, pool: _Pool, size: int) -> Block | None:
        place, free = bisect_left(pool.free, (size, -1)), pool.free
        if self._settings.expandable and place < len(free) and free[place][2] is pool.last:
            place += place + 1 < len(free)  # the last one can grow: best for what is larger
        if place == len(free):
            return None
        block, most = free[place][2], self._settings.max_split
        if most is not None and not pool.is_small:
            if size < most <= block.size:
                return None
            if size >= most and block.size >= size + _LARGE_SEGMENT:
                return None
        del free[place]
        block.is_free = False
        return block

    def _new_block(self, pool: _Pool, size: int) -> Block:
        if self._settings.expandable:
            return self._grown(pool, size)
        if pool.is_small:
            segment = _SMALL_SEGMENT
        elif size < _OWN_SEGMENT:
            segment = _LARGE_SEGMENT
        else:
            segment = -(-size // _ROUNDED) * _ROUNDED
        self._reserve(segment)
        self._segments += 1
        return Block(pool, self._segments * _SEGMENT_ADDRESSES, segment)

    def _grown(self, pool: _Pool, size: int) -> Block:
        page = _SMALL_SEGMENT if pool.is_small else _LARGE_SEGMENT
        last = pool.last
        if last is not None and last.is_free:
            pool.remove(last)
            added = -(-(size - last.size) // page) * page
            last.size += added
            last.unmapped += added
            return last
        added = -(-size // page) * page
        if last is None:
            self._segments += 1
            address = self._segments * _SEGMENT_ADDRESSES
        else:
            address = last.address + last.size
        block = Block(pool, address, added, last)
        block.unmapped = added
        if last is not None:
            last.after = block
        pool.last = block
        return block

    def _map(self, block: Block, size: int) -> None:
        """Reserve what of a block of an expandable segment is not there."""
        missing = min(block.unmapped, size)
        if missing:
            page = _SMALL_SEGMENT if block.pool.is_small else _LARGE_SEGMENT
            missing = min(-(-missing // page) * page, block.unmapped)
            self._reserve(missing)
            block.unmapped -= missing

    def _split(self, pool: _Pool, block: Block, size: int) -> None:
        rest = block.size - size
        if pool.is_small or self._settings.expandable:
            splits = rest >= LEAST
        else:
            most = self._settings.max_split
            splits = rest > _SMALL and (most is None or size < most)
        if not splits:
            return
        left = Block(pool, block.address + size, rest, block, block.after)
        left.unmapped, block.unmapped = block.unmapped, 0
        if left.after is not None:
            left.after.before = left
        if pool.last is block:
            pool.last = left
        block.size, block.after = size, left
        pool.keep(left)

    def _reserve(self, size: int) -> None:
        if self._limit is not None and self.reserved + size > self._limit:
            self.release()
            self.retries += 1
            self.failures += self.reserved + size > self._limit
        self.reserved += size
        self.highest = max(self.highest, self.reserved)


class Block:
    """A stretch of a segment."""

    __slots__ = ("address", "after", "before", "is_free", "pool", "size", "unmapped")

    def __init__(
        self,
        pool: _Pool,
        address: int,
        size: int,
        before: Block | None = None,
        after: Block | None = None,
    ) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.before, self.after = before, after
        self.is_free = False
        self.unmapped = 0  # bytes of it that are not reserved; of expandable segments alone


class _Pool:
    """The free blocks of one stream, small or large, the smallest first."""

    def __init__(self, stream: int, is_small: bool) -> None:
        self.stream, self.is_small = stream, is_small
        self.free: list[tuple[int, int, Block]] = []  # by size and address
        self.last: Block | None = None  # with the highest address, of an expandable segment

    def keep(self, block: Block) -> None:
        block.is_free = True
        insort(self.free, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        block.is_free = False
        del self.free[bisect_left(self.free, (block.size, block.address))]
