"""A process of a job: takes orders from its standard input, a line of JSON each, and answers so.

Who starts it and tells it what to do is in `job.py`.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.profiling.answers import Answer, answering
from paracosm.profiling.here import environment_here
from paracosm.profiling.jobs.pytorch.messages import join
from paracosm.profiling.jobs.pytorch.server import serve
from paracosm.profiling.jobs.pytorch.setup import Setup, load, trained
from paracosm.profiling.jobs.pytorch.worker import Worker

__all__ = ["main"]

Order = dict[str, Any]


def main() -> None:
    """Carry out orders until the input ends."""
    setup = Setup(**json.loads(sys.argv[1]))
    answer = answering()
    orders = _orders()
    try:
        torch.set_num_threads(setup.threads)
        (_be_server if setup.role == "server" else _be_worker)(setup, orders, answer)
    except InputError as error:
        answer(refused=str(error))
    except Exception as error:
        answer(error=one_line(error))
    # Not an orderly end: gloo would wait for processes that are gone.
    os._exit(0)


def _be_server(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    every = [parameter.detach() for _, parameter in trained(load(setup))]
    own = {i: each for i, each in enumerate(every) if i % setup.servers == setup.index}
    join(setup)
    answer(ready=True)
    for order in orders:
        pushed = [i for i in order["pushed"] if i in own]
        for worker in range(setup.servers, setup.servers + setup.workers):
            arguments = (answer, worker, own, pushed, setup.rate)
            threading.Thread(target=_serve, args=arguments, daemon=True).start()
        answer(ready=True)


def _serve(answer: Answer, *arguments: Any) -> None:
    try:
        serve(*arguments)
    except Exception as error:
        answer(error=one_line(error))
        os._exit(0)


def _be_worker(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    workload = load(setup)
    worker = Worker(workload, setup.servers, setup.waiting)
    environment = environment_here(threads=setup.threads, pinned=False)
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
            _steps(worker, order, answer)
        else:
            answer(**_window(worker, order))


def _steps(worker: Worker, order: Order, answer: Answer) -> None:
    with ThreadPoolExecutor(1) as telling:  # of a step while the next one runs
        for _ in range(order["steps"]):
            telling.submit(answer, **vars(worker.step()))


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


if __name__ == "__main__":
    main()
