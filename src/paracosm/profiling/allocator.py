"""Holding glibc's malloc to one way of allocating memory.

By default malloc returns large blocks to the system when they are freed, and every new one costs
page faults: up to a fifth of a training iteration, attributed to whichever op happens to pay.
*Kept*, blocks stay with the process; this can be set while it runs. One cause remains: PyTorch asks
for aligned blocks, malloc cuts them out of larger ones, and its per-thread cache keeps the
remainders, so that freed blocks cannot merge and the next one of their size is new memory after
all. That cache can only be switched off before the process starts: *pinned* is both.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from paracosm.arrays import Ints
from paracosm.graphs.graph import Graph

PINNED, KEPT, DEFAULT = "malloc pinned", "malloc kept", "malloc default"

_VARIABLE, _TUNABLE = "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"

# From malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_PAD = 64 << 20


def keep_memory() -> str:
    """Make malloc keep freed memory in this process; return the allocator's name, which differs
    where the C library has no `mallopt` and nothing changes."""
    if not _is_glibc():
        return DEFAULT
    mallopt = ctypes.CDLL(None).mallopt
    wanted = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _PAD))
    if not all(mallopt(ctypes.c_int(option), ctypes.c_int(value)) for option, value in wanted):
        return DEFAULT
    return PINNED if _started_pinned() else KEPT


def own_allocator() -> str:
    """Return the allocator with which this process would time ops, without changing it."""
    return (PINNED if _started_pinned() else KEPT) if _is_glibc() else DEFAULT


def command_allocator() -> str:
    """Return the allocator with which the commands time ops on this machine."""
    return PINNED if _is_glibc() else DEFAULT


def pinned_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables with which a process starts pinned."""
    tunables = [part for part in (environ.get(_VARIABLE), _TUNABLE) if part]
    return {**environ, _VARIABLE: ":".join(tunables)}


def restart_pinned() -> None:
    """Restart this program with the same arguments and pinned, unless it already is.

    For programs on Linux with glibc, to be called first: all state is lost.
    """
    if _is_glibc() and not _started_pinned():
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, sys.orig_argv, pinned_environ(os.environ))


def new_memory(graph: Graph) -> Ints:
    """Return the bytes of new memory that each of n nodes touches in a step under default malloc.

    By mallopt(3): blocks from the threshold M_MMAP_THRESHOLD on are mapped, and returned when they
    are freed; the threshold is 128 KiB at first, and becomes the size of any mapped block that is
    freed, up to 32 MiB. The others lie in a heap, whose end is returned when more than twice the
    threshold is free. Gaps in the heap are not modelled. What outlives the step, the gradients, is
    freed when the next one begins.
    """
    storages = graph.storages
    made: dict[int, list[int]] = {}
    freed: dict[int, list[int]] = {}
    for number, (first, last) in enumerate(zip(storages.first, storages.last, strict=True)):
        if first >= 0:
            made.setdefault(int(first), []).append(number)
            freed.setdefault(int(last), []).append(number)
    sizes = storages.size.tolist()
    heap = _Heap()
    for _ in range(_STEPS):
        found = np.zeros(len(graph), dtype=np.int64)
        for number in freed.get(len(graph), ()):  # those that outlived the step before
            heap.free(number)
        for node in sorted({*made, *freed} - {len(graph)}):
            found[node] = sum(heap.allocate(each, sizes[each]) for each in made.get(node, ()))
            for number in freed.get(node, ()):
                heap.free(number)
    return found


class _Heap:
    def __init__(self) -> None:
        self._threshold, self._trim = _LEAST_MAPPED, _LEAST_MAPPED
        self._used = self._end = 0  # bytes of the heap that are in use, and that it has
        self._held: dict[int, tuple[int, bool]] = {}  # size of a block, and whether it is mapped

    def allocate(self, block: int, size: int) -> int:
        """Allocate a block and return the bytes of it that are new."""
        mapped = size > self._threshold  # a mapped block is whole pages, and so a little larger
        self._held[block] = size, mapped
        if mapped:
            return size
        self._used += size
        new = max(self._used - self._end, 0)
        self._end += new
        return new

    def free(self, block: int) -> None:
        size, mapped = self._held.pop(block, (0, False))
        if mapped and self._threshold < size <= _MOST_MAPPED:
            self._threshold, self._trim = size, 2 * size
        if not mapped:
            self._used -= size
            if self._end - self._used > self._trim:
                self._end = self._used


_STEPS = 4  # after which the thresholds have grown as far as they do
_LEAST_MAPPED, _MOST_MAPPED = 128 << 10, 32 << 20


def _is_glibc() -> bool:
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    return hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt")


def _started_pinned() -> bool:
    try:
        started = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    prefix = f"{_VARIABLE}=".encode()
    return any(_TUNABLE.encode() in entry for entry in started if entry.startswith(prefix))
