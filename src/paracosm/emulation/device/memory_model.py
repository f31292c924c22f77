"""The memory of a recording: what tensors hold, for what and of which modules, and its verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Codes, Ints
from paracosm.cluster.hardware.device_memory import (
    CONTEXT,
    Verdict,
    communicator_bytes,
    verdict_of,
)
from paracosm.emulation.device.recording import RELEASE, Recording
from paracosm.jobs.job import MEMORY
from paracosm.simulation.caching_allocator import Block, CachingAllocator, parse_settings

_LISTED = 10  # modules
_OUTSIDE = "outside of any module"
OF_STATE = tuple(MEMORY.index(kind) for kind in ("parameters", "gradients", "optimizer"))


@dataclass(frozen=True)
class ModuleUse:
    """What modules hold whose names differ in their numbers alone."""

    name: str  # "layers.*.feed_forward.w1"
    count: int  # of modules
    state: int  # bytes of parameters, gradients and the optimizer
    rest: int  # bytes of activations, buffers of collectives and what is temporary


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one rank."""

    allocated: int  # bytes that tensors hold at most in the last iteration
    by_kind: Mapping[str, int]  # of these, by `MEMORY`, the largest first
    modules: Sequence[ModuleUse]  # those that hold most of these
    reserved: int  # bytes that the allocator holds at most, since the beginning
    overhead: int  # bytes of CUDA and NCCL
    capacity: int  # bytes of the device
    retries: int  # times that the allocator gives back what is not used, to make room
    is_full: bool  # whether there is no room then either

    @property
    def total(self) -> int:
        return self.reserved + self.overhead

    @property
    def verdict(self) -> Verdict:
        """Say whether it is within the device's memory."""
        return verdict_of(self.total, self.capacity, self.retries, is_full=self.is_full)


def memory_use(recording: Recording, capacity: int) -> MemoryUse:
    """Return what a recording takes of a device with so many bytes of memory.

    Raises:
        InputError: settings of the allocator that are not modelled.
    """
    held = held_by_kind(recording)
    total = held.sum(axis=0)
    is_gpu = recording.context is None
    first = first_of_last_iteration(recording)
    at = first + int(np.argmax(total[first:])) if len(total) > first else 0
    by_kind = {kind: int(held[code, at]) for code, kind in enumerate(MEMORY) if held[code, at]}
    rings = sum(communicator_bytes(len(ranks)) for ranks in recording.groups.values())
    overhead = (CONTEXT + rings) * is_gpu
    limit = capacity - overhead
    reserved, retries = int(total.max(initial=0)), 0  # by malloc, on a CPU
    is_full = reserved > limit
    if is_gpu:
        reserved = played_allocator(recording).highest
        limited = played_allocator(recording, limit) if reserved > limit else None
        is_full = limited is not None and limited.failures > 0
        if limited is not None and not is_full:
            reserved, retries = limited.highest, limited.retries
    return MemoryUse(
        allocated=int(total[at]) if len(total) else 0,
        by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        modules=_modules(recording, at),
        reserved=reserved,
        overhead=overhead,
        capacity=capacity,
        retries=retries,
        is_full=is_full,
    )


def first_of_last_iteration(recording: Recording) -> int:
    steps = recording.steps
    return int(steps[-2]) + 1 if len(steps) > 1 else 0


def held_by_kind(recording: Recording) -> Ints:
    """Return the bytes that tensors hold by kind of memory and request, shape (kinds, n)."""
    count, storages = len(recording), recording.storages
    held = np.zeros((len(MEMORY), count + 1), dtype=np.int64)
    np.add.at(held, (storages.kind, storages.first), storages.size)
    np.subtract.at(held, (storages.kind, np.minimum(storages.last + 1, count)), storages.size)
    return np.cumsum(held, axis=1)[:, :count]


def played_allocator(recording: Recording, limit: int | None = None) -> CachingAllocator:
    """Return PyTorch's allocator after all blocks of a recording, in their order.

    Args:
        recording: whose storages are taken and freed.
        limit: bytes that it may take of the device; None where there is no end of it.
    """
    storages, count = recording.storages, len(recording)
    numbers = np.arange(len(storages))
    releases = np.flatnonzero(recording.kind == RELEASE)
    # Of one request, what was freed before it comes first, then what it makes.
    rows = np.concatenate([storages.last + 1, storages.first, releases + 1])
    does = np.repeat([0, 2, 1], [len(storages), len(storages), len(releases)])
    of = np.concatenate([numbers, numbers, np.zeros(len(releases), dtype=np.int64)])
    order = np.lexsort((of, does, rows))
    order = order[rows[order] <= count]
    allocator = CachingAllocator(parse_settings(recording.allocator), limit)
    blocks: dict[int, Block] = {}
    sizes, streams = storages.size.tolist(), storages.stream.tolist()
    for what, number in zip(does[order].tolist(), of[order].tolist(), strict=True):
        if what == 2:
            blocks[number] = allocator.take(sizes[number], streams[number])
        elif what == 1:
            allocator.release()
        elif number in blocks:
            allocator.free(blocks.pop(number))
    return allocator


def _modules(recording: Recording, at: int) -> list[ModuleUse]:
    """Return the modules that hold most at a request, the largest first."""
    storages = recording.storages
    names, groups, counts = grouped(recording.modules)
    group_of = np.append(groups, len(names))  # -1, of none, is the last one
    is_held = (storages.first <= at) & (storages.last >= at)
    is_state = np.isin(storages.kind, OF_STATE)
    sums = [
        np.bincount(
            group_of[storages.module[chosen]],
            weights=storages.size[chosen],
            minlength=len(names) + 1,
        ).astype(np.int64)
        for chosen in (is_held & is_state, is_held & ~is_state)
    ]
    uses = [
        ModuleUse(name, count, int(state), int(rest))
        for name, count, state, rest in zip(
            [*names, _OUTSIDE],
            [*counts, 1],
            *(of_module.tolist() for of_module in sums),
            strict=True,
        )
        if state or rest
    ]
    return sorted(uses, key=lambda use: -(use.state + use.rest))[:_LISTED]


def grouped(modules: Sequence[str]) -> tuple[list[str], Codes, list[int]]:
    """Return names with "*" for numbers, the place among these of each module, and their counts."""
    places: dict[str, int] = {}
    codes = [
        places.setdefault(re.sub(r"(?<![^.])\d+(?![^.])", "*", name), len(places))
        for name in modules
    ]
    of: NDArray[np.int32] = np.array(codes, dtype=np.int32)
    return list(places), of, np.bincount(of, minlength=len(places)).tolist()
