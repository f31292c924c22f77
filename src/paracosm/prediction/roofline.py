"""The coarsest model there is, as a baseline: every op at the best rate the device has shown."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paracosm.graphs import RESOURCES, Graph
from paracosm.profiling.samples import OpTiming

__all__ = ["roofline_time"]


def roofline_time(graph: Graph, timings: Iterable[OpTiming]) -> float | None:
    """Return the seconds of an iteration by the roofline alone; None where no rates are known.

    A node takes max(flops / F, bytes / B) (Williams, Waterman, Patterson: Roofline, 2009), with F
    and B the highest rates of any op in `timings`.
    """
    best_flops = best_bytes = 0.0
    for timing in timings:
        seconds = timing.duration
        if seconds > 0:
            moved = timing.op.bytes_read + timing.op.bytes_written
            best_flops = max(best_flops, timing.op.flops / seconds)
            best_bytes = max(best_bytes, moved / seconds)
    if best_flops == 0 or best_bytes == 0:
        return None
    times = np.maximum(
        graph.flops / best_flops, (graph.bytes_read + graph.bytes_written) / best_bytes
    )
    return float(times[graph.resource == RESOURCES.index("compute")].sum())
