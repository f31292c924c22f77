"""A parameter server's tensors while several workers train: by which rule, and who did what."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression
from paracosm.profiling.jobs.pytorch.server import Store


@dataclass(frozen=True)
class UpdateRule:
    """What becomes of gradients.

    The same algorithms as those of `paracosm.training`, written a second time: these trainings are
    what their simulation is compared with.
    """

    name: str
    slack: int | None = None  # steps that a worker may be ahead of the slowest; None for any number

    @property
    def is_synchronous(self) -> bool:
        """Whether an update has the mean gradient of all workers, who wait for it."""
        return self.name in ("ssgd", "ddp")

    @property
    def has_servers(self) -> bool:
        return self.name != "ddp"

    def scale(self, staleness: int) -> float:
        """Return the factor of the learning rate for a gradient of that staleness.

        Zhang, Gupta, Lian, Liu, "Staleness-aware Async-SGD for Distributed Deep Learning", 2016,
        equation 6.
        """
        return 1 / max(1, staleness) if self.name == "staleness-aware" else 1.0


ALGORITHMS = ("asgd", "staleness-aware", "ssp(slack=3)", "ssgd", "ddp")


def parse_update_rule(text: str) -> UpdateRule:
    """Read asgd, staleness-aware, ssp(slack=3), ssgd (on servers) or ddp (all-reduce)."""
    name, positional, options = parse_expression(text, "algorithm")
    if name not in [each.partition("(")[0] for each in ALGORITHMS]:
        raise unknown("algorithm of a real job", text, ALGORITHMS)
    slack = options.pop("slack", "3") if name == "ssp" else None
    if positional or options or not (slack is None or slack.isdecimal()):
        raise InputError(f'algorithm "{text}": write {" or ".join(ALGORITHMS)}')
    return UpdateRule(name, None if slack is None else int(slack))


class TrainingStore(Store):
    """The tensors of a server during one training of several workers.

    A snapshot is a list of references, as tensors are replaced and never changed.
    What happens is noted in the order in which it did, with whole microseconds of the machine's
    monotonic clock, of which no two are the same but those of gradients that make one update.
    """

    def __init__(
        self, tensors: Mapping[int, Tensor], rule: UpdateRule, lr: float, workers: int, pushes: int
    ) -> None:
        """`tensors` by number, of which each worker pushes `pushes` gradients in a step."""
        super().__init__(tensors, lr)
        self.sending = list(tensors)  # the order in which tensors that are read are sent
        # Time, worker, then the version of each tensor, in their order
        self.reads: list[tuple[int, ...]] = []
        # Time, worker, tensor, the version that came about, the one that the gradient is of
        self.updates: list[tuple[int, int, int, int, int]] = []
        self.snapshots: list[tuple[int, list[Tensor]]] = []  # when, and the tensors in their order
        self.dropped = 0  # gradients that were to wait for those of a worker that had left
        self._rule, self._workers, self._pushes = rule, workers, max(1, pushes)
        self._changed = threading.Condition(self._lock)  # of clocks and versions
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
            return {number: self._tensors[number] for number in self.sending}

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
