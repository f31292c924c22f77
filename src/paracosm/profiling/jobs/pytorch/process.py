"""A process of a job: takes orders from its standard input, a line of JSON each, and answers so.

Who starts it and tells it what to do is in `job`.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.profiling.environment import environment_here
from paracosm.profiling.jobs.pytorch.all_reduce import train_all_reducing
from paracosm.profiling.jobs.pytorch.options import (
    JobOptions,
    Setup,
    load,
    parse_update_rule,
    trained,
)
from paracosm.profiling.jobs.pytorch.server import Server, Store, keep_snapshots
from paracosm.profiling.jobs.pytorch.transport import join
from paracosm.profiling.jobs.pytorch.worker import Step, Worker
from paracosm.profiling.processes import Answer, answering
from paracosm.rng import TrainingStream, generator

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
    def own(options: JobOptions) -> dict[int, torch.Tensor]:
        every = trained(load(options)[0])
        return {
            i: parameter.detach()
            for i, (_, parameter) in enumerate(every)
            if i % options.servers == setup.rank
        }

    like = own(setup.options)
    join(setup)
    answer(ready=True)
    pushed = [i for i in next(orders)["pushed"] if i in like]
    server = Server(pushed, setup.options.port)

    def serve(worker: int) -> None:
        try:
            server.serve(setup.options.servers + worker, worker, like)
        except Exception as error:
            answer(error=one_line(error))
            os._exit(0)

    for worker in range(setup.workers):
        threading.Thread(target=serve, args=(worker,), daemon=True).start()
    answer(ready=True)
    ended = threading.Event()
    for order in orders:
        if order["do"] == "prepare":
            options = replace(setup.options, **order["options"])
            rule = parse_update_rule(options.algorithm)
            store = Store(own(options), rule, options.lr, order["workers"], len(pushed))
            server.store = store
            answer(ready=True)
        elif order["do"] == "train":
            busy = time.process_time()
            ended.clear()
            when = (order["begin"], order["snapshot_every"], ended)
            keeping = threading.Thread(target=keep_snapshots, args=(store, *when), daemon=True)
            keeping.start()
        else:
            ended.set()
            keeping.join()
            busy = time.process_time() - busy
            store.write(Path(order["file"]))
            answer(cpu=busy)


def _be_worker(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    options, number = setup.options, setup.rank - setup.options.servers
    workload, feed = load(options, number)
    worker = Worker(workload, options.servers, options.waiting)
    environment = environment_here(threads=options.threads, pinned=False)
    join(setup)
    answer(
        segments=[asdict(segment) for segment in worker.segments],
        parameters=[(name, p.numel() * p.element_size()) for name, p in worker.parameters],
        tensors={name: p.numel() for name, p in worker.parameters},
        environment=str(environment),
        examples=workload.examples,
    )
    for order in orders:
        if order["do"] == "goodput":
            down, up = worker.goodput(order["down"], order["up"], order["size"])
            answer(down=down, up=up)
        elif order["do"] == "prepare":
            options = replace(setup.options, **order["options"])
            workload, feed = load(options, number)
            worker.take(workload)
            steps = _steps(worker, options, number, feed)
            answer(ready=True)
        elif order["do"] == "steps":
            with ThreadPoolExecutor(1) as telling:  # of a step while the next one runs
                for step in islice(steps, order["steps"]):
                    telling.submit(answer, **vars(step))
        elif parse_update_rule(options.algorithm).has_servers:
            done = _train(steps, order)
            worker.leave()
            answer(**done)
        else:
            ranks = range(options.servers, options.servers + order["workers"])
            answer(**train_all_reducing(worker, steps, ranks, options.lr, order))


def _steps(
    worker: Worker, options: JobOptions, number: int, feed: Callable[[], None]
) -> Iterator[Step]:
    """Run a step whenever the next one is asked for, each with the next minibatch."""
    random = generator(options.seed, TrainingStream.COMPUTE, number)
    while True:
        feed()
        worker.factor = math.exp(options.noise * random.standard_normal() - options.noise**2 / 2)
        yield worker.step()


def _train(steps: Iterator[Step], order: Order) -> dict[str, Any]:
    """Run steps for as long, or as many, as ordered."""
    done: list[Step] = []
    busy = time.process_time()
    time.sleep(max(0.0, order["begin"] - time.monotonic()))
    while time.monotonic() < order["end"] and len(done) != order["steps"]:
        done.append(next(steps))
    cpu = time.process_time() - busy
    return {
        "cpu": cpu,
        **{key: [getattr(s, key) for s in done] for key in ("begin", "end", "loss")},
    }


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
