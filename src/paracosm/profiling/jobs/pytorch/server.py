"""A parameter server: tensors, read as a whole, changed by one gradient at a time."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor

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
    """The tensors of a server, for the threads that serve workers.

    Tensors are replaced by updates and never changed.
    """

    def __init__(self, tensors: Mapping[int, Tensor], lr: float) -> None:
        """Keep `tensors` by number."""
        self._tensors, self._lr = dict(tensors), lr
        self._lock = threading.Lock()

    def read(self, worker: int) -> dict[int, Tensor]:
        """Return all tensors as they are at one instant."""
        with self._lock:
            return dict(self._tensors)

    def push(self, worker: int, number: int, gradient: Tensor) -> tuple[float, float]:
        """Apply a gradient; return begin and end."""
        with self._lock:
            begin = time.monotonic()
            self._tensors[number] = self._tensors[number].sub(gradient, alpha=self._lr)
            return begin, time.monotonic()

    def wait_for_updates(self, worker: int) -> None:
        """Wait until every gradient of the worker is applied; here `push` has done that."""

    def leave(self, worker: int) -> None:
        """Stop waiting for a worker; here nobody does."""


class Server:
    """Serves workers, each in a thread of its own, until their connections break."""

    def __init__(self, store: Store, pushed: Sequence[int], rate: float | None) -> None:
        """`pushed` are the numbers of the store's tensors, in the order of their gradients; `rate`,
        in bytes/s, is that of a port simulated by waiting."""
        self.store = store
        self.pushed = pushed
        self._down = None if rate is None else Port(rate)
        self._up = None if rate is None else Port(rate)

    def serve(self, rank: int, worker: int, like: Mapping[int, Tensor]) -> None:
        """Serve one worker, the process of that rank.

        All tensors, as they are at the request, are sent in order while gradients arrive; each is
        applied on arrival, independently of other workers. The worker then gets the times at which
        each gradient arrived, and its update began and ended.
        """
        gradients = {i: torch.zeros_like(like[i]) for i in self.pushed}
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
        times = [(end, *update.result()) for end, update in zip(ends, updated, strict=True)]
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


class Port:
    """Carries bytes of several workers at once, each at an equal share of the rate.

    Nothing is sent here: callers of `carry` wait for as long as a fluid link would take, and send
    over one that is much faster.
    """

    def __init__(self, rate: float) -> None:
        """`rate` in bytes/s."""
        self._rate = rate
        self._changed = threading.Condition()  # of who is being carried
        self._left: dict[int, float] = {}  # bytes, by worker
        self._at = time.monotonic()  # until when `_left` is right

    def carry(self, worker: int, size: int) -> None:
        """Wait until `size` bytes of a worker, which has no others under way, have passed."""
        with self._changed:
            self._pass_until(time.monotonic())
            self._left[worker] = float(size)
            self._changed.notify_all()
            while worker in self._left:
                self._changed.wait(self._left[worker] * len(self._left) / self._rate)
                self._pass_until(time.monotonic())
            self._changed.notify_all()

    def _pass_until(self, now: float) -> None:
        while self._left:
            least, count = min(self._left.values()), len(self._left)
            end = self._at + least * count / self._rate
            if end > now:
                passed = (now - self._at) * self._rate / count
                self._left = {worker: left - passed for worker, left in self._left.items()}
                break
            self._at = end
            self._left = {
                worker: left - least for worker, left in self._left.items() if left > least
            }
        self._at = now
