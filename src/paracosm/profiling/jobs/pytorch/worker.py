"""A worker: pulls parameters, computes each layer when they are there, pushes each gradient."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from paracosm.models import Workload
from paracosm.profiling.jobs.pytorch.messages import (
    ACKNOWLEDGE,
    GOODPUT,
    PULL,
    PUSH,
    REQUEST,
    STEP,
    exchange,
)
from paracosm.profiling.jobs.pytorch.segments import (
    Boundary,
    Segment,
    find_segments,
    forward_and_backward,
    watching,
)
from paracosm.profiling.jobs.pytorch.setup import trained

__all__ = ["Step", "Worker"]


@dataclass
class Step:
    """What a step did, in seconds of the machine's monotonic clock.

    Attributes:
        begin: when the parameters were asked for.
        pulled: by parameter, when it was there.
        computed: by segment, begin and end.
        pushed: by gradient, in the order of the segments: when it was handed over, when the server
            had it, when its update began and ended.
        end: when all servers had said that they are done.
        loss: of the parameters that were pulled.
    """

    begin: float
    pulled: list[float]
    computed: list[list[float]]
    pushed: list[list[float]]
    end: float
    loss: float


class Worker:
    """Runs steps; parameter i comes from, and its gradient goes to, server i modulo their number.

    Attributes:
        segments: of every step.
        parameters: names and parameters.
    """

    def __init__(
        self, workload: Workload, servers: int, waiting: tuple[float, float] | None
    ) -> None:
        """Find the segments, by a step here.

        Args:
            workload: what to train.
            servers: their ranks are 0 to `servers` - 1.
            waiting: seconds of the forward and the backward pass, or None.
        """
        self.parameters = trained(workload)
        self.segments = find_segments(workload)
        self._numbers = {name: i for i, (name, _) in enumerate(self.parameters)}
        self._least = _least_seconds(self.segments, waiting)
        self._workload = workload
        self._servers = servers
        self._pulling = ThreadPoolExecutor(servers)
        layers = {each.begin.what for each in self.segments if each.begin.kind == "layer"}
        self._hooks = ExitStack()  # for as long as the process
        self._hooks.enter_context(watching(workload, sorted(layers), self._reached))

    def step(self) -> Step:
        """Run one step.

        Raises:
            RuntimeError: a server is gone, or the step computes something else than the first.
        """
        for _, parameter in self.parameters:
            parameter.grad = None
        count = len(self.parameters)
        self._there = [threading.Event() for _ in range(count)]
        self._pulled = [math.nan] * count
        self._computed = [[0.0, 0.0] for _ in self.segments]
        self._pushed: list[tuple[int, float, Any]] = []
        self._at = 0
        begin = time.monotonic()
        pulls = [self._pull(server) for server in range(self._servers)]
        self._computed[0][0] = begin
        loss = forward_and_backward(self._workload, self._reached)
        if self._at < len(self.segments):
            raise RuntimeError(f"this step ends before {_written(self.segments[self._at].end)}")
        done = [self._acknowledged(server) for server in range(self._servers)]
        end = time.monotonic()
        for pull in pulls:
            pull.result()
        for _, _, work in self._pushed:
            work.wait()
        pushed = [[at, *done[i % self._servers][i]] for i, at, _ in self._pushed]
        return Step(begin, self._pulled, self._computed, pushed, end, loss)

    def goodput(self, down: int, up: int, size: int) -> tuple[float, float]:
        """Exchange messages with server 0, and return bytes/s down and up."""
        request = torch.tensor([GOODPUT, down, up, size], dtype=torch.int64)
        dist.send(request, 0, tag=REQUEST)
        received = exchange(0, up, down, size)
        answer = torch.zeros(1, dtype=torch.float64)
        dist.recv(answer, 0, tag=ACKNOWLEDGE)
        return received, float(answer)

    def _pull(self, server: int) -> Future[None]:
        """Ask a server for its parameters, and note in another thread when each is there."""
        numbers = range(server, len(self.parameters), self._servers)
        works = [dist.irecv(self.parameters[i][1].detach(), server, tag=PULL + i) for i in numbers]
        dist.send(torch.tensor([STEP, 0, 0, 0], dtype=torch.int64), server, tag=REQUEST)
        return self._pulling.submit(self._note, numbers, works)

    def _note(self, numbers: Sequence[int], works: Sequence[Any]) -> None:
        try:
            for i, work in zip(numbers, works, strict=True):
                work.wait()
                self._pulled[i] = time.monotonic()
                self._there[i].set()
        finally:
            for i in numbers:  # who waits finds out that it did not come
                self._there[i].set()

    def _reached(self, boundary: Boundary) -> None:
        at = self._at
        if at == len(self.segments) or boundary != self.segments[at].end:
            before = _written(self.segments[at].end) if at < len(self.segments) else "the end"
            raise RuntimeError(f"this step has {_written(boundary)} where the first had {before}")
        left = self._computed[at][0] + self._least[at] - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._computed[at][1] = time.monotonic()
        if boundary.kind == "gradient":
            self._push(self._numbers[boundary.what])
        self._at = at = at + 1
        if at < len(self.segments):
            # From here on, or from when the last pull was there: handing over a gradient and waking
            # up are part of what the worker computes.
            there = [self._await(self._numbers[name]) for name in self.segments[at].needs]
            self._computed[at][0] = max(self._computed[at - 1][1], *there, 0.0)

    def _push(self, number: int) -> None:
        gradient = self.parameters[number][1].grad
        assert gradient is not None
        begin = time.monotonic()
        work = dist.isend(gradient.contiguous(), number % self._servers, tag=PUSH + number)
        self._pushed.append((number, begin, work))

    def _await(self, number: int) -> float:
        """Wait until a parameter is there, and return since when it was."""
        self._there[number].wait()
        if math.isnan(self._pulled[number]):
            raise RuntimeError(f"server {number % self._servers} is gone")
        return self._pulled[number]

    def _acknowledged(self, server: int) -> dict[int, list[float]]:
        """Wait until a server has applied all gradients; return its times by parameter."""
        numbers = [i for i, _, _ in self._pushed if i % self._servers == server]
        times = torch.zeros(len(numbers), 3, dtype=torch.float64)
        dist.recv(times, server, tag=ACKNOWLEDGE)
        return dict(zip(numbers, times.tolist(), strict=True))


def _least_seconds(segments: Sequence[Segment], waiting: tuple[float, float] | None) -> list[float]:
    """Share the seconds of each pass by floating-point operations, or equally if there are none."""
    if waiting is None:
        return [0.0] * len(segments)
    least = []
    for segment in segments:
        its = [each for each in segments if each.forward == segment.forward]
        flops = sum(each.flops for each in its)
        share = segment.flops / flops if flops else 1 / len(its)
        least.append(waiting[0 if segment.forward else 1] * share)
    return least


def _written(boundary: Boundary) -> str:
    return f"{boundary.kind} {boundary.what}".strip()
