"""Asynchronous SGD as plain loops over who is done next, after the papers' algorithms.

Messages take no time and worker i computes each gradient for `seconds[i]`, so that nothing happens
at one instant but what has to. Parameters are one vector, and every snapshot is a copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class Job:
    """What W workers do: gradients, of which each takes the worker's time."""

    initial: Tensor
    gradient: Callable[[Tensor, Any], Tensor]  # at parameters, of a minibatch
    batches: Sequence[Iterator[Any]]  # by worker: a minibatch is taken when computing begins
    seconds: Sequence[float]
    lr: float

    @property
    def workers(self) -> int:
        return len(self.seconds)


def dc_asgd_a(job: Job, updates: int, strength: float, decay: float) -> Tensor:
    """Zheng et al. 2017, algorithm 2 with lambda_t = lambda_0 / sqrt(MeanSquare(t) + 1e-7)."""
    w, mean_square = job.initial.clone(), 0.0
    backup = [w.clone() for _ in job.seconds]
    queue = [(time, worker) for worker, time in enumerate(job.seconds)]
    heapq.heapify(queue)
    for _ in range(updates):
        now, m = heapq.heappop(queue)
        g = job.gradient(backup[m], next(job.batches[m]))
        mean_square = decay * mean_square + (1 - decay) * g**2
        lam = strength / (mean_square + 1e-7).sqrt()
        w = w - job.lr * (g + lam * g * g * (w - backup[m]))
        backup[m] = w.clone()
        heapq.heappush(queue, (now + job.seconds[m], m))
    return w


def ringmaster(job: Job, updates: int, threshold: int, stop: bool) -> tuple[Tensor, int]:
    """Maranjyan et al. 2025, algorithm 4, or 5 with `stop`; also how many gradients were lost."""
    x, k, lost = job.initial.clone(), 0, 0
    begun: list[tuple[Tensor, int, Any, float]] = []  # point, its k, minibatch, when it is done
    for worker, time in enumerate(job.seconds):
        begun.append((x, 0, next(job.batches[worker]), time))
    while k < updates:
        i = min(range(job.workers), key=lambda worker: begun[worker][3])
        point, at, batch, now = begun[i]
        if k - at < threshold:
            x, k = x - job.lr * job.gradient(point, batch), k + 1
        else:
            assert not stop, "it should have been stopped"
            lost += 1
        for worker, (_, other, _, _) in enumerate(begun):
            outdated = stop and k - other >= threshold and worker != i
            lost += outdated and k < updates
            if worker == i or outdated:
                done = now + job.seconds[worker]
                begun[worker] = (x, k, next(job.batches[worker]), done)
    return x, lost


def rennala(job: Job, updates: int, size: int) -> tuple[Tensor, int]:
    """Tyurin, Richtarik 2023; who completes a batch goes on at the new point."""
    x, lost = job.initial.clone(), 0
    points = [(0, x)] * job.workers
    queue = [(time, worker) for worker, time in enumerate(job.seconds)]
    heapq.heapify(queue)
    for k in range(updates):
        total, gathered = 0.0, 0
        while gathered < size:
            now, i = heapq.heappop(queue)
            at, point = points[i]
            batch = next(job.batches[i])
            if at == k:
                total, gathered = total + job.gradient(point, batch) / size, gathered + 1
            else:
                lost += 1
            if gathered == size:
                x = x - job.lr * total
                points[i] = (k + 1, x)
            else:
                points[i] = (k, x)
            heapq.heappush(queue, (now + job.seconds[i], i))
    return x, lost


def ssp_with_cache(job: Job, updates: int, slack: int) -> tuple[Tensor, int]:
    """Ho et al. 2013, section 3: reads by the cache rule, all own writes seen.

    Return the server's parameters, and how often it was asked for them.
    """
    log: list[tuple[int, int, Tensor]] = []  # worker, clock, update
    clocks = [0] * job.workers
    cached = [(0, 0)] * job.workers  # clock of a cache, and how long the log was when it was filled
    asked = 0
    queue = [(time, worker) for worker, time in enumerate(job.seconds)]
    heapq.heapify(queue)
    blocked: list[int] = []

    def view(worker: int) -> Tensor:
        """Add up what the worker sees: the log up to its cache, and its own updates after it."""
        theta = job.initial.clone()
        for place, (writer, _, update) in enumerate(log):
            if place < cached[worker][1] or writer == worker:
                theta = theta + update
        return theta

    while len(log) < updates:
        now, worker = heapq.heappop(queue)
        gradient = job.gradient(view(worker), next(job.batches[worker]))
        log.append((worker, clocks[worker], -job.lr * gradient))
        clocks[worker] += 1
        blocked.append(worker)
        for each in list(blocked):
            oldest = clocks[each] - slack  # everybody's updates of earlier clocks must be seen
            if cached[each][0] < oldest:
                if min(clocks) < oldest:
                    continue
                cached[each] = (min(clocks), len(log))
                asked += 1
            blocked.remove(each)
            heapq.heappush(queue, (now + job.seconds[each], each))
    total = job.initial.clone()
    for _, _, update in log:
        total = total + update
    return total, asked


def ad_psgd(job: Job, updates: int, neighbour: Callable[[int], int]) -> Tensor:
    """Lian et al. 2018, algorithm 1, with the averaging beside the gradient; the workers' mean.

    Workers of even number average as their gradient begins; they step from the mean.
    """
    x = [job.initial.clone() for _ in job.seconds]
    averaged: list[Any] = [None] * job.workers
    begun: list[Any] = [None] * job.workers
    queue: list[tuple[float, int]] = []

    def begin(i: int, now: float) -> None:
        begun[i] = (x[i].clone(), next(job.batches[i]))
        heapq.heappush(queue, (now + job.seconds[i], i))

    def average(i: int) -> None:
        if i % 2 == 0:
            j = neighbour(i)
            x[j] = averaged[i] = (x[j] + x[i]) / 2

    for i in range(job.workers):
        begin(i, 0.0)
        average(i)
    for update in range(updates):
        now, i = heapq.heappop(queue)
        if i % 2 == 0:
            x[i] = averaged[i]
        x[i] = x[i] - job.lr * job.gradient(*begun[i])
        begin(i, now)
        if update < updates - 1:
            average(i)
    return sum(x) / job.workers


def easgd(job: Job, moves: int, period: int, alpha: float) -> Tensor:
    """Zhang, Choromanska, LeCun 2015, algorithm 1; the centre after so many moves from t > 0 on."""
    centre = job.initial.clone()
    local = [centre.clone() for _ in job.seconds]
    clocks = [0] * job.workers
    queue = [(0.0, worker) for worker in range(job.workers)]
    at: list[Any] = [None] * job.workers  # the point of the gradient under way
    while True:
        now, i = heapq.heappop(queue)
        if at[i] is not None:  # a gradient is done
            local[i] = local[i] - job.lr * job.gradient(at[i], next(job.batches[i]))
            clocks[i] += 1
        x = local[i].clone()
        if clocks[i] % period == 0:
            difference = x - centre
            local[i] = local[i] - alpha * difference
            centre = centre + alpha * difference
            moves -= clocks[i] > 0
            if not moves:
                return centre
        at[i] = x
        heapq.heappush(queue, (now + job.seconds[i], i))
