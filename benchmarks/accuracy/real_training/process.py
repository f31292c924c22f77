"""A process of a real training: what a profiled one does, and trainings by one rule after another.

Who starts it and tells it what to do is in `training`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from paracosm.profiling.jobs.pytorch.options import Setup, load
from paracosm.profiling.jobs.pytorch.process import (
    Order,
    obey,
    own_tensors,
    run_role,
    start_server,
    start_worker,
    steps_of,
)
from paracosm.profiling.jobs.pytorch.worker import Step
from paracosm.profiling.processes import Answer
from real_training.store import TrainingStore, keep_snapshots, parse_update_rule
from real_training.worker import TrainingWorker, train_all_reducing


def _serve(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    server = start_server(setup, orders, answer)
    ended = threading.Event()
    for order in orders:
        if order["do"] == "prepare":
            options = replace(setup.options, **order["options"])
            rule, tensors = parse_update_rule(order["algorithm"]), own_tensors(setup, options)
            workers, pushes = order["workers"], len(server.pushed)
            store = server.store = TrainingStore(tensors, rule, options.lr, workers, pushes)
            if order["sending"] is not None:
                store.sending = [number for number in order["sending"] if number in tensors]
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


def _work(setup: Setup, orders: Iterator[Order], answer: Answer) -> None:
    options, number = setup.options, setup.number
    workload, feed = load(options, number)
    worker = TrainingWorker(workload, options.servers, options.waiting)
    start_worker(worker, workload, setup, answer)
    steps = steps_of(worker, options, number, feed)
    for order in orders:
        if order["do"] == "prepare":
            options, rule = replace(setup.options, **order["options"]), order["algorithm"]
            workload, feed = load(options, number)
            worker.take(workload)
            steps = steps_of(worker, options, number, feed)
            answer(ready=True)
        elif order["do"] != "train":
            obey(order, worker, steps, answer)
        elif parse_update_rule(rule).has_servers:
            done = _train(steps, order)
            worker.leave()
            answer(**done)
        else:
            ranks = range(options.servers, options.servers + order["workers"])
            answer(**train_all_reducing(worker, steps, ranks, options.lr, order))


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


if __name__ == "__main__":
    run_role(_serve, _work)
