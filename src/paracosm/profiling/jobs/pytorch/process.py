"""A process of a job: reads orders from its standard input and answers, one line of JSON each.

`job` starts it and sends the orders.
"""

import json
import math
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch

from paracosm.errors import InputError
from paracosm.factory import describe_error
from paracosm.models import Workload
from paracosm.profiling.environment import environment_here
from paracosm.profiling.jobs.pytorch.options import JobOptions, Setup, load, trained
from paracosm.profiling.jobs.pytorch.server import Server, Store
from paracosm.profiling.jobs.pytorch.transport import join
from paracosm.profiling.jobs.pytorch.worker import Step, Worker
from paracosm.profiling.processes import Answer, answering
from paracosm.rng import TrainingStream, generator

Order = dict[str, Any]
Role = Callable[[Setup, Iterator[Order], Answer], None]


def main() -> None:
    """Serve or work until the input ends."""
    run_role(_serve, _work)


def run_role(serve: Role, work: Role) -> None:
    """Run as the server or worker that the setup describes; report failures."""
    setup = Setup.of_json(sys.argv[1])
    answer = answering()
    orders = _orders()
    try:
        torch.set_num_threads(setup.options.threads)
        (work if setup.is_worker else serve)(setup, orders, answer)
    except InputError as error:
        answer(refused=str(error))
    except Exception as error:
        answer(error=describe_error(error))
    # Not an orderly end: gloo would wait for processes that are gone.
    os._exit(0)


def _serve(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    start_server(setup, orders, answer)
    for order in orders:
        raise ValueError(f"a server has no order {order}")


def _work(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    options, number = setup.options, setup.number
    workload, feed = load(options, number)
    worker = Worker(workload, options.servers, options.waiting)
    start_worker(worker, workload, setup, answer)
    steps = steps_of(worker, options, number, feed)
    for order in orders:
        obey(order, worker, steps, answer)


def own_tensors(setup: Setup, options: JobOptions) -> dict[int, torch.Tensor]:
    """Return a server's tensors by number, as they are before any training."""
    return {
        i: parameter.detach()
        for i, (_, parameter) in enumerate(trained(load(options)[0]))
        if i % options.servers == setup.rank
    }


def start_server(setup: Setup, orders: Iterator[Order], answer: Answer) -> Server:
    """Meet the others, then serve every worker in a thread of its own."""
    like = own_tensors(setup, setup.options)
    join(setup)
    answer(ready=True)
    pushed = [i for i in next(orders)["pushed"] if i in like]
    server = Server(Store(like, setup.options.lr), pushed, setup.options.port)

    def serve(worker: int) -> None:
        try:
            server.serve(setup.options.servers + worker, worker, like)
        except Exception as error:
            answer(error=describe_error(error))
            os._exit(0)

    for worker in range(setup.workers):
        threading.Thread(target=serve, args=(worker,), daemon=True).start()
    answer(ready=True)
    return server


def start_worker(worker: Worker, workload: Workload, setup: Setup, answer: Answer) -> None:
    """Meet the others and report the parts of a step."""
    environment = environment_here(threads=setup.options.threads, pinned=False)
    join(setup)
    answer(
        segments=[asdict(segment) for segment in worker.segments],
        parameters=[(name, p.numel() * p.element_size()) for name, p in worker.parameters],
        tensors={name: p.numel() for name, p in worker.parameters},
        environment=str(environment),
        examples=workload.examples,
    )


def obey(order: Order, worker: Worker, steps: Iterator[Step], answer: Answer) -> None:
    """Measure the goodput, or run steps and report each."""
    if order["do"] == "goodput":
        down, up = worker.goodput(order["down"], order["up"], order["size"])
        answer(down=down, up=up)
    else:
        with ThreadPoolExecutor(1) as telling:  # of a step while the next one runs
            for step in islice(steps, order["steps"]):
                telling.submit(answer, **vars(step))


def steps_of(
    worker: Worker, options: JobOptions, number: int, feed: Callable[[], None]
) -> Iterator[Step]:
    """Run a step, with the next minibatch, whenever the next one is requested."""
    random = generator(options.seed, TrainingStream.COMPUTE, number)
    while True:
        feed()
        worker.factor = math.exp(options.noise * random.standard_normal() - options.noise**2 / 2)
        yield worker.step()


def _orders() -> Iterator[Order]:
    """Yield orders as they arrive; the process ends when the input does."""
    waiting: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            waiting.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return iter(waiting.get, None)


if __name__ == "__main__":
    main()
