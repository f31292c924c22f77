"""Costs of a CPU apart from ops: pages of new memory, gradients in transit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.jobs.strategies.work import NO_INTERFERENCE, OF_GPUS, Interference
from paracosm.prediction.config import PredictConfig
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.environment import Environment
from paracosm.profiling.links.measure import LinkSettings, measure_links, seconds_per_byte
from paracosm.profiling.samples import LinkTiming
from paracosm.units import format_duration, format_size

ALONE = "assumed: computing is as fast as alone"
NEW_MEMORY = 64 << 20  # bytes that are taken to measure what a page costs
_STEPS = 4  # after which the thresholds of malloc have grown as far as they do
_LEAST_MAPPED, _MOST_MAPPED = 128 << 10, 32 << 20


def find_page_faults(
    config: PredictConfig,
    graph: Graph,
    environment: Environment,
    is_here: bool,
    say: Callable[[str], None],
) -> Floats | None:
    """Return the seconds that new memory costs each node; None where malloc keeps what is freed."""
    if environment.device != "cpu":
        if config.allocator == "default":
            raise InputError("allocator: has no effect on a GPU, which has its own: leave it out")
        return None
    new = new_memory(graph)
    if config.allocator == "kept":
        if total := int(new.sum()):
            say(
                f"Untuned, malloc takes {format_size(total)} of new memory in every iteration: "
                "--allocator default counts that."
            )
        return None
    with ProfileDatabase.open(config.db, readonly=not is_here) as database:
        known = _of_processor(database.links(), environment, "new memory")
        if not known and is_here:
            settings = LinkSettings(kinds=("new memory",), sizes=(NEW_MEMORY,))
            known = measure_links(settings).timings
            database.add_links(known)
    if not known:
        raise InputError(
            f"allocator: {config.db} lacks the cost of new memory on {environment.hardware}: "
            "paracosm measure link --kinds new-memory --db there adds it"
        )
    cost = sum(timing.time.mean for timing in known) / sum(timing.size for timing in known)
    return np.asarray(new * cost, dtype=np.float64)


def _of_processor(
    timings: Sequence[LinkTiming], environment: Environment, kind: str
) -> list[LinkTiming]:
    """Return the timings of a kind on a processor, whatever allocator and threads ops had there."""
    return [
        timing
        for timing in timings
        if timing.kind == kind and timing.environment.hardware == environment.hardware
    ]


def find_interference(
    config: PredictConfig, environment: Environment | None, ranks: int
) -> tuple[Interference, str]:
    """Return the slowdown of computing by collectives of so many replicas, and its source.

    On a CPU it is what was measured of DDP on that processor, if it was.
    """
    interference, source = NO_INTERFERENCE, ""
    if config.slowdown is not None:
        interference = Interference(slowdown=config.slowdown)
        source = f"given: computing takes {config.slowdown:g} times as long"
    elif config.catalogued is not None and config.catalogued.device.kind == "gpu":
        interference = OF_GPUS
        source = (
            f"published: computing takes {interference.slowdown:g} times as long (Lee et al. 2025)"
        )
    if environment is None or environment.device != "cpu":
        return interference, source or ALONE
    with ProfileDatabase.open(config.db, readonly=True) as database:
        timings = _of_processor(database.links(), environment, "ddp")
    cost = seconds_per_byte(timings, ranks)
    if not cost:
        return interference, source or ALONE
    measured = f"measured: {format_duration(cost * 1e6)} of a rank's core for each MB"
    return replace(interference, per_byte=cost), ", ".join(filter(None, (measured, source)))


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
