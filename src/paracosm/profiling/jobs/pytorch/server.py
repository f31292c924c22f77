"""A parameter server: sends parameters to whoever begins a step, and applies gradients at once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor

from paracosm.profiling.jobs.pytorch.messages import (
    ACKNOWLEDGE,
    GOODPUT,
    PULL,
    PUSH,
    REQUEST,
    exchange,
)

__all__ = ["serve"]


def serve(
    worker: int, parameters: Mapping[int, Tensor], pushed: Sequence[int], rate: float
) -> None:
    """Serve one worker, in a thread of its own, until its connection breaks.

    All parameters are sent in their order, while gradients come in; each is applied as soon as it
    is there, whatever other workers do. Parameters are sent as they are when their turn comes, and
    may be changed by the gradients of other workers meanwhile, as is usual in asynchronous SGD.

    The worker is told when each gradient had arrived, and when its update began and ended.

    Args:
        worker: its rank.
        parameters: those of this server, by their number.
        pushed: numbers of their gradients, in the order in which they come.
        rate: learning rate.

    Raises:
        RuntimeError: the worker is gone.
    """
    gradients = {i: torch.zeros_like(parameters[i]) for i in pushed}
    with ThreadPoolExecutor(1) as updates:
        while True:
            request = torch.zeros(4, dtype=torch.int64)
            dist.recv(request, worker, tag=REQUEST)
            kind, down, up, size = request.tolist()
            if kind == GOODPUT:
                bandwidth = exchange(worker, down, up, size)
                dist.send(torch.tensor([bandwidth], dtype=torch.float64), worker, tag=ACKNOWLEDGE)
            else:
                _step(worker, parameters, gradients, rate, updates)


def _step(
    worker: int,
    parameters: Mapping[int, Tensor],
    gradients: Mapping[int, Tensor],
    rate: float,
    updates: ThreadPoolExecutor,
) -> None:
    arriving = [dist.irecv(gradients[i], worker, tag=PUSH + i) for i in gradients]
    leaving = [dist.isend(parameters[i], worker, tag=PULL + i) for i in parameters]
    ends, updated = [], []
    for i, work in zip(gradients, arriving, strict=True):
        assert work is not None
        work.wait()
        ends.append(time.monotonic())
        updated.append(updates.submit(_update, parameters[i], gradients[i], rate))
    times = [(end, *each.result()) for end, each in zip(ends, updated, strict=True)]
    for work in leaving:
        assert work is not None
        work.wait()
    dist.send(torch.tensor(times, dtype=torch.float64), worker, tag=ACKNOWLEDGE)


def _update(parameter: Tensor, gradient: Tensor, rate: float) -> tuple[float, float]:
    begin = time.monotonic()
    parameter.add_(gradient, alpha=-rate)
    return begin, time.monotonic()
