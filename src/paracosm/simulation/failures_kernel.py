"""Failures of workers while steps are simulated, at exponential intervals from random streams.

A worker that fails loses the step under way: what it computes, sends, receives, and what a server
does for it stops. Bytes in the network still arrive, and are ignored. After its restart it begins
its next step; the tensors that it had updated stay updated.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Ints
from paracosm.compiled import columns, compiled_whole, inlined
from paracosm.compiled_references import Referenced
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.heaps import later
from paracosm.simulation.schedule import FAILURE
from paracosm.timing.compiled import uniform

NEXT, ROWS = range(2)
"""In `Failures.counts`: the worker that fails next, rows written."""

FAILING = np.dtype(columns("i8", "at", "back", "drawn"))
"""A worker: when it fails next, until when it is away, how many intervals were drawn."""


class Failures(NamedTuple):
    """Workers that fail, or none."""

    mtbf: float  # picoseconds between failures of a worker
    restart: int  # picoseconds until it is back
    keys: npt.NDArray[np.uint64]
    workers: Any
    counts: Ints
    rows: Any  # of failures, as far as there is room


def make_failures(mtbf: float, restart: float, keys: npt.NDArray[np.uint64]) -> Failures:
    """Return as many workers as there are keys of random streams; times in seconds."""
    workers = np.zeros(len(keys), FAILING)
    counts, rows = np.zeros(2, np.int64), np.zeros(len(keys), FAILURE)
    failures = Failures(mtbf * 1e12, round(restart * 1e12), keys, workers, counts, rows)
    if len(keys) > 0:
        _draw_first(Referenced(failures))
    return failures


@compiled_whole
def _draw_first(failures: Any) -> None:
    for worker in range(failures.workers.size):
        _draw(failures, worker)
    _find_next(failures)


@inlined
def has_no_room(failures: Any) -> Any:
    """Return whether there is no room for the row of another failure."""
    return failures.workers.size > 0 and failures.counts[ROWS] == failures.rows.size


@inlined
def next_failure(failures: Any) -> Any:
    """Return the instant of the next failure; the last one if no worker fails."""
    if failures.workers.size == 0:
        return LAST_INSTANT
    return failures.workers[failures.counts[NEXT]].at


@inlined
def fail_next(failures: Any, now: Any) -> Any:
    """Make the next worker fail now; return which."""
    worker = failures.counts[NEXT]
    state = failures.workers[worker]
    state.back = state.at = later(now, failures.restart)
    _draw(failures, worker)
    _find_next(failures)
    if failures.counts[ROWS] < failures.rows.size:
        row = failures.rows[failures.counts[ROWS]]
        row.time, row.worker = now, worker
        failures.counts[ROWS] += 1
    return worker


@inlined
def back_at(failures: Any, worker: Any, now: Any) -> Any:
    """Return when a worker can begin a step."""
    return now if failures.workers.size == 0 else max(now, failures.workers[worker].back)


@inlined
def _draw(failures: Any, worker: Any) -> None:
    state = failures.workers[worker]
    interval = -np.log(uniform(failures.keys[worker], state.drawn)) * failures.mtbf
    state.at += np.int64(min(interval, np.float64(LAST_INSTANT - state.at) / 2))
    state.drawn += 1


@inlined
def _find_next(failures: Any) -> None:
    for worker in range(failures.workers.size):
        if failures.workers[worker].at < failures.workers[failures.counts[NEXT]].at:
            failures.counts[NEXT] = worker
