"""A process of a job: takes orders from its standard input, a line of JSON each, and answers so.

Who starts it and tells it what to do is in `job`.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.profiling.environment import environment_here
from paracosm.profiling.jobs.pytorch.job import Setup, load, trained
from paracosm.profiling.jobs.pytorch.worker import (
    ACKNOWLEDGE,
    GOODPUT,
    PULL,
    PUSH,
    REQUEST,
    Worker,
    exchange,
    join,
)
from paracosm.profiling.processes import Answer, answering

Order = dict[str, Any]


def main() -> None:
    """Carry out orders until the input ends."""
    setup = Setup.of_json(sys.argv[1])
    answer = answering()
    orders = _orders()
    try:
        torch.set_num_threads(setup.options.threads)
        (_be_worker if setup.is_worker else _be_server)(setup, orders, answer)
    except InputError as error:
        answer(refused=str(error))
    except Exception as error:
        answer(error=one_line(error))
    # Not an orderly end: gloo would wait for processes that are gone.
    os._exit(0)


def _be_server(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    options, servers = setup.options, setup.options.servers
    every = [parameter.detach() for _, parameter in trained(load(options))]
    own = {i: each for i, each in enumerate(every) if i % servers == setup.rank}
    join(setup)
    answer(ready=True)

    def serve_one(worker: int, pushed: Sequence[int]) -> None:
        try:
            serve(worker, own, pushed, options.rate)
        except Exception as error:
            answer(error=one_line(error))
            os._exit(0)

    for order in orders:
        pushed = [i for i in order["pushed"] if i in own]
        for worker in range(servers, servers + setup.workers):
            threading.Thread(target=serve_one, args=(worker, pushed), daemon=True).start()
        answer(ready=True)


def _be_worker(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    options = setup.options
    workload = load(options)
    worker = Worker(workload, options.servers, options.waiting)
    environment = environment_here(threads=options.threads, pinned=False)
    join(setup)
    answer(
        segments=[asdict(segment) for segment in worker.segments],
        parameters=[(name, p.numel() * p.element_size()) for name, p in worker.parameters],
        environment=str(environment),
        examples=workload.examples,
    )
    for order in orders:
        if order["do"] == "goodput":
            down, up = worker.goodput(order["down"], order["up"], order["size"])
            answer(down=down, up=up)
        elif order["do"] == "steps":
            with ThreadPoolExecutor(1) as telling:  # of a step while the next one runs
                for _ in range(order["steps"]):
                    telling.submit(answer, **vars(worker.step()))
        else:
            answer(**_window(worker, order))


def _window(worker: Worker, order: Order) -> dict[str, Any]:
    begins, ends, losses = [], [], []
    busy = time.process_time()
    time.sleep(max(0.0, order["begin"] - time.monotonic()))
    while time.monotonic() < order["end"]:
        step = worker.step()
        begins.append(step.begin)
        ends.append(step.end)
        losses.append(step.loss)
    return {"begin": begins, "end": ends, "loss": losses, "cpu": time.process_time() - busy}


def _orders() -> Iterator[Order]:
    """Return orders as they come; whatever is being done ends when the input does."""
    waiting: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            waiting.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return iter(waiting.get, None)


def serve(
    worker: int, parameters: Mapping[int, Tensor], pushed: Sequence[int], rate: float
) -> None:
    """Serve one worker, in a thread of its own, until its connection breaks.

    All parameters are sent in their order, while gradients come in; each is applied as soon as it
    is there, whatever other workers do. Parameters are sent as they are when their turn comes, and
    may be changed by the gradients of other workers meanwhile, as is usual in asynchronous SGD.

    The worker is told when each gradient had arrived, and when its update began and ended.
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


if __name__ == "__main__":
    main()
