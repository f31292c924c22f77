"""Timing-only runs of simple exchanges, compiled: the schedule of millions of steps in seconds.

Nothing is computed and nothing is recorded span by span, so a run is a sequence of events about
workers and the two ports of one server. `schedule_kernel.py` plays them; tests hold it against the
engine, event by event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paracosm.timing import Distribution, Recorded, Scaled, Slowdown

if TYPE_CHECKING:
    from paracosm.cluster import Cluster
    from paracosm.training.algorithms import Exchange
    from paracosm.training.config import TrainConfig

__all__ = ["BusyTimes", "Schedule", "play_schedule", "simple_exchange"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BusyTimes = dict[str, dict[str, float]]
"""Seconds by node and resource: "compute", "send", "receive"."""

_FEWEST_AHEAD = 16


@dataclass(frozen=True)
class Schedule:
    """Who contributed to which update, and when; n is updates times pushes an update.

    Attributes:
        time: virtual time of each contribution's update, shape (n,).
        worker: index of the worker that made it, shape (n,).
        staleness: updates between its read and its own, shape (n,).
        end: when the answers to the last update had arrived.
        computed: seconds that each worker computed until then, shape (W,).
        uploading: seconds that its gradients held the ports, shape (W,).
        downloading: seconds that its answers held the ports, shape (W,).
    """

    time: Floats
    worker: Integers
    staleness: Integers
    end: float
    computed: Floats
    uploading: Floats
    downloading: Floats

    def busy_times(self, cluster: Cluster) -> BusyTimes:
        """Return for how many seconds every worker and the server computed, sent and received."""
        columns = (self.computed.tolist(), self.uploading.tolist(), self.downloading.tolist())
        busy = {
            name: {"compute": computed, "send": up, "receive": down}
            for name, computed, up, down in zip(cluster.workers, *columns, strict=True)
        }
        up, down = float(self.uploading.sum()), float(self.downloading.sum())
        return {cluster.servers[0]: {"compute": 0.0, "send": down, "receive": up}, **busy}


def simple_exchange(config: TrainConfig, cluster: Cluster) -> Exchange | None:
    """Return the exchange whose schedule can be played compiled; None where the engine must run."""
    compute = config.compute_distribution()
    if cluster.sharing == "fair":
        return None
    if not config.timing_only or compute is None or _has_a_place(compute):
        return None
    if config.until is not None or config.resolve_topology() != "server":
        return None
    if len(cluster.servers) != 1 or config.update_time.mean() > 0:
        return None
    server = cluster.servers[0]
    if cluster.node(server).name != server:
        return None  # it shares the ports of a worker's node
    if any(cluster.link(worker, server).duplex == "half" for worker in cluster.workers):
        return None
    return config.algorithm.exchange(len(cluster.workers))


def _has_a_place(distribution: Distribution) -> bool:
    """Whether draws ahead of time could exhaust it."""
    if isinstance(distribution, (Scaled, Slowdown)):
        return _has_a_place(distribution.base)
    return isinstance(distribution, Recorded)


def play_schedule(
    exchange: Exchange,
    cluster: Cluster,
    size: float,
    updates: int,
    compute_times: list[Iterator[float]],
) -> Schedule:
    """Play the schedule of `updates` updates.

    Args:
        exchange: what makes an update, and whom it answers.
        cluster: workers around one server, full duplex.
        size: bytes of a message, either way.
        updates: how many there are to be.
        compute_times: of each worker, without end.
    """
    from paracosm.training import schedule_kernel as kernel

    workers, contributions = len(cluster.workers), updates * exchange.pushes
    occupancy, propagation = _transfer_times(cluster, size)
    # Enough for all in most cases; who runs out gets as many again.
    ahead = max(_FEWEST_AHEAD, contributions // workers * 9 // 8)
    durations = np.stack([_take(ahead, source) for source in compute_times])
    drawn = np.zeros(workers, np.int64)
    computed, until = np.zeros(workers), np.zeros(workers)
    busy, began = np.zeros((2, workers)), np.full((2, workers), float(kernel.NOT_BEGUN))
    out_time = np.empty(contributions)
    out_worker, out_age = np.empty(contributions, np.int64), np.empty(contributions, np.int64)
    state, heap = kernel.initial_state(workers)
    queues = np.empty((2, workers), np.int64)
    read = np.zeros(workers, np.int64)
    while True:
        end = kernel.run_events(
            state,
            *heap,
            occupancy,
            propagation,
            durations,
            drawn,
            computed,
            until,
            read,
            busy,
            began,
            queues,
            exchange.pushes,
            exchange.answer_all,
            updates,
            out_time,
            out_worker,
            out_age,
        )
        hungry = state[kernel.HUNGRY]
        if hungry == kernel.NOBODY:
            break
        durations[hungry] = _take(ahead, compute_times[hungry])
        drawn[hungry] = 0
    uploading, downloading = busy + np.where(began >= 0, end - began, 0.0)
    computed -= np.maximum(0.0, until - end)
    return Schedule(out_time, out_worker, out_age, end, computed, uploading, downloading)


def _take(count: int, source: Iterator[float]) -> Floats:
    return np.fromiter(islice(source, count), np.float64, count)


def _transfer_times(cluster: Cluster, size: float) -> tuple[Floats, Floats]:
    """Return occupancy and propagation of each worker's messages, shape (2, W): up, down."""
    server = cluster.servers[0]
    links = (
        [cluster.link(worker, server) for worker in cluster.workers],
        [cluster.link(server, worker) for worker in cluster.workers],
    )
    occupancy = np.array([[link.occupancy(size) for link in way] for way in links])
    propagation = np.array([[link.propagation(size) for link in way] for way in links])
    return occupancy, propagation
