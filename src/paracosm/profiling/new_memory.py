"""Memory that glibc's malloc gets from the system anew in each step of a graph."""

import numpy as np

from paracosm.arrays import Ints
from paracosm.graphs.graph import Graph

_STEPS = 4  # after which the thresholds have grown as far as they do
_LEAST_MAPPED, _MOST_MAPPED = 128 << 10, 32 << 20


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
        bytes_of_node = np.zeros(len(graph), dtype=np.int64)
        for number in freed.get(len(graph), ()):  # those that outlived the step before
            heap.free(number)
        for node in sorted({*made, *freed} - {len(graph)}):
            bytes_of_node[node] = sum(
                heap.allocate(storage, sizes[storage]) for storage in made.get(node, ())
            )
            for number in freed.get(node, ()):
                heap.free(number)
    return bytes_of_node


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
