"""Costs of a CPU apart from ops: pages of new memory, gradients in transit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.jobs.strategies.work import NO_INTERFERENCE, OF_GPUS, Interference
from paracosm.prediction.config import PredictConfig
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.environment import Environment
from paracosm.profiling.links.measure import LinkSettings, measure_links, seconds_per_byte
from paracosm.profiling.new_memory import new_memory
from paracosm.profiling.samples import LinkTiming
from paracosm.units import format_duration, format_size

ALONE = "assumed: computing is as fast as alone"
NEW_MEMORY = 64 << 20  # bytes that are taken to measure what a page costs


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
