"""A parameter server: tensors with versions, read as a whole, changed by one gradient at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from paracosm.profiling.jobs.pytorch.options import UpdateRule
from paracosm.profiling.jobs.pytorch.port import Port
from paracosm.profiling.jobs.pytorch.transport import (
    ACKNOWLEDGE,
    GOODPUT,
    LEAVE,
    PULL,
    PUSH,
    REQUEST,
    exchange,
    posted,
)


class Store:
    """The tensors of a server during one training, for the threads that serve workers.

    Tensors are replaced by updates and never changed, so that a snapshot is a list of references.
    What happens is noted in the order in which it did, with whole microseconds of the machine's
    monotonic clock, of which no two are the same but those of gradients that make one update.
    """

    def __init__(
        self, tensors: Mapping[int, Tensor], rule: UpdateRule, lr: float, workers: int, pushes: int
    ) -> None:
        """`tensors` by number, of which each worker pushes `pushes` gradients in a step."""
        # Time, worker, then the version of each tensor, in their order
        self.reads: list[tuple[int, ...]] = []
        # Time, worker, tensor, the version that came about, the one that the gradient is of
        self.updates: list[tuple[int, int, int, int, int]] = []
        self.snapshots: list[tuple[int, list[Tensor]]] = []  # when, and the tensors in their order
        self.dropped = 0  # gradients that were to wait for those of a worker that had left
        self._tensors = dict(tensors)
        self._rule, self._lr, self._workers, self._pushes = rule, lr, workers, max(1, pushes)
        self._changed = threading.Condition()  # of clocks and versions; its lock is the server's
        self._versions = dict.fromkeys(tensors, 0)
        self._read = [dict(self._versions) for _ in range(workers)]
        self._pushed = [0] * workers
        self._left: set[int] = set()
        self._gathered: dict[int, dict[int, Tensor]] = {number: {} for number in tensors}
        self._last = 0

    def read(self, worker: int) -> dict[int, Tensor]:
        """Return all tensors as they are at one instant, once the worker may have them."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_go_on(worker))
            self._read[worker] = dict(self._versions)
            self.reads.append((self._now(), worker, *self._versions.values()))
            return dict(self._tensors)

    def push(self, worker: int, number: int, gradient: Tensor) -> tuple[float, float]:
        """Apply a gradient, or keep it until it is one of all workers; return begin and end.

        Nobody may change a gradient that is kept before `wait_for_updates` has returned.
        """
        with self._changed:
            begin = time.monotonic()
            gathered = self._gathered[number]
            gathered[worker] = gradient
            self._pushed[worker] += 1
            if not self._rule.is_synchronous or len(gathered) == self._workers:
                self._update(number)
            elif self._left:
                self._drop(number)
            self._changed.notify_all()
            return begin, time.monotonic()

    def wait_for_updates(self, worker: int) -> None:
        """Wait until no gradient of the worker waits for those of others."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(worker not in gathered for gathered in self._gathered.values())
            )

    def leave(self, worker: int) -> None:
        """Wait no longer for a worker, who makes no further step."""
        with self._changed:
            self._left.add(worker)
            for number in self._gathered:
                self._drop(number)
            self._changed.notify_all()

    def keep_snapshot(self) -> None:
        with self._changed:
            self.snapshots.append((self._now(), list(self._tensors.values())))

    def _may_go_on(self, worker: int) -> bool:
        """Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
        Server", 2013: nobody is more than `slack` steps ahead of the slowest."""
        if self._rule.slack is None:
            return True
        clocks = [
            math.inf if each in self._left else pushed // self._pushes
            for each, pushed in enumerate(self._pushed)
        ]
        return clocks[worker] - min(clocks) <= self._rule.slack

    def _update(self, number: int) -> None:
        gathered, version = self._gathered[number], self._versions[number]
        sources = list(gathered)
        read = [self._read[worker][number] for worker in sources]
        gradients = tuple(gathered.values())
        direction = gradients[0] if len(gradients) == 1 else torch.stack(gradients).mean(0)
        gathered.clear()
        rate = self._lr * self._rule.scale(version - read[0])
        self._tensors[number] = self._tensors[number].sub(direction, alpha=rate)
        self._versions[number] = version + 1
        now = self._now()
        for worker, its in zip(sources, read, strict=True):
            self.updates.append((now, worker, number, version + 1, its))

    def _drop(self, number: int) -> None:
        self.dropped += len(self._gathered[number])
        self._gathered[number].clear()

    def _now(self) -> int:
        self._last = max(time.monotonic_ns() // 1000, self._last + 1)
        return self._last

    def write(self, path: Path) -> None:
        """Write what has been noted as arrays "reads", "updates", "dropped", "snapshot_times" and
        "snapshots", which has a row of all elements of the tensors, in their order."""
        rows = [torch.cat([each.flatten() for each in its]).numpy() for _, its in self.snapshots]
        np.savez(
            path,
            reads=np.array(self.reads, np.int64).reshape(-1, 2 + len(self._tensors)),
            updates=np.array(self.updates, np.int64).reshape(-1, 5),
            dropped=self.dropped,
            snapshot_times=np.array([at for at, _ in self.snapshots], np.int64),
            snapshots=np.stack(rows),
        )


def keep_snapshots(store: Store, begin: float, every: float, ended: threading.Event) -> None:
    """Keep a snapshot at the begin, every so many seconds after it, and at the end."""
    due = begin
    while not ended.wait(min(max(0.0, due - time.monotonic()), threading.TIMEOUT_MAX)):
        store.keep_snapshot()
        due += every
    store.keep_snapshot()


class Server:
    """What serves workers, each in a thread of its own, until their connections break."""

    def __init__(self, pushed: Sequence[int], rate: float | None) -> None:
        """`pushed` are the numbers of the server's tensors, in the order of their gradients;
        `rate`, in bytes/s, is that of a port by waiting."""
        self.store: Store  # of the training that runs, or ran last
        self._pushed = pushed
        self._down = None if rate is None else Port(rate)
        self._up = None if rate is None else Port(rate)

    def serve(self, rank: int, worker: int, like: Mapping[int, Tensor]) -> None:
        """Serve one worker, the process of that rank.

        All tensors, as they are at the request, are sent in their order while gradients come in;
        each is applied as soon as it is there, whatever other workers do. The worker is told when
        each gradient had arrived, and when its update began and ended.
        """
        gradients = {i: torch.zeros_like(like[i]) for i in self._pushed}
        with ThreadPoolExecutor(1) as updates, ThreadPoolExecutor(1) as sending:
            while True:
                request = torch.zeros(4, dtype=torch.int64)
                dist.recv(request, rank, tag=REQUEST)
                kind, down, up, size = request.tolist()
                said: Sequence[object] = [0.0]
                if kind == GOODPUT:
                    said = [exchange(rank, down, up, size)]
                elif kind == LEAVE:
                    self.store.leave(worker)
                else:
                    said = self._step(rank, worker, gradients, updates, sending)
                dist.send(torch.tensor(said, dtype=torch.float64), rank, tag=ACKNOWLEDGE)

    def _step(
        self,
        rank: int,
        worker: int,
        gradients: Mapping[int, Tensor],
        updates: ThreadPoolExecutor,
        sending: ThreadPoolExecutor,
    ) -> list[tuple[float, float, float]]:
        arriving = [posted(dist.irecv(gradients[i], rank, tag=PUSH + i)) for i in gradients]
        sent = sending.submit(self._send, rank, worker, self.store.read(worker))
        ends, updated = [], []
        for i, work in zip(gradients, arriving, strict=True):
            work.wait()
            if self._up is not None:
                self._up.carry(worker, gradients[i].nbytes)
            ends.append(time.monotonic())
            updated.append(updates.submit(self.store.push, worker, i, gradients[i]))
        times = [(end, *each.result()) for end, each in zip(ends, updated, strict=True)]
        self.store.wait_for_updates(worker)
        sent.result()
        return times

    def _send(self, rank: int, worker: int, tensors: Mapping[int, Tensor]) -> None:
        leaving = []
        for i, tensor in tensors.items():
            if self._down is not None:
                self._down.carry(worker, tensor.nbytes)
            leaving.append(posted(dist.isend(tensor, rank, tag=PULL + i)))
        for work in leaving:
            work.wait()
