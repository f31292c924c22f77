"""Gradients over a schedule against a plain loop that computes the same ones, interleaved.

    python benchmarks/numerics_on_schedule.py [--repeats N]

The plain loop keeps the tensors that each step has read, sets them as the module's, differentiates
automatically, and subtracts from each tensor when the schedule says so; it records nothing. Both do
the same updates in the same order, so their last parameters are compared as well. Times are those
of the processor, without the time to build model and data.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import repeat
from time import process_time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from paracosm.cluster import Link, star
from paracosm.models import DataSet, load_data
from paracosm.models.build import build_model
from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.simulation.rules import asgd
from paracosm.simulation.schedule import Schedule
from paracosm.simulation.scheduling import generate_schedule
from paracosm.timing import parse_distribution
from paracosm.training import TrainConfig
from paracosm.training.numerics.scheduled import events, train_on_schedule

SEED, LR = 3, 0.02
CASES = (  # model, batch, workers, updates, at most of the plain loop's time: off, auto
    ("mlp(hidden=256, layers=2)", 32, 8, 400, 1.1, 0.5),
    ("mlp", 32, 8, 1200, 1.1, 0.5),
    ("mlp", 10, 64, 1200, 1.1, 0.5),
)


def make_schedule(sizes: list[int], workers: int, updates: int) -> Schedule:
    """Return a schedule in which every tensor has a link and a server of its own."""
    cluster = star(workers, len(sizes), Link(bandwidth=2e7, latency=1e-4))
    times = parse_distribution("lognormal(20ms, 0.1)")
    draws = [times.draws(generator(SEED, TrainingStream.COMPUTE, w)) for w in range(workers)]
    return generate_schedule(cluster, asgd(), [4.0 * size for size in sizes], updates, draws)


def plainly(
    schedule: Schedule, data: DataSet, model: str, batch: int, workers: int
) -> tuple[float, torch.Tensor]:
    """Return the processor's seconds, and the last parameters as a flat vector."""
    module = build_model(model, data, integer_seed(SEED, TrainingStream.MODEL)).module.train()
    parameters = list(module.parameters())
    every = np.arange(len(data.train_x))
    samplers = [
        BatchSampler(every, batch, generator(SEED, TrainingStream.BATCHES, worker))
        for worker in range(workers)
    ]
    now = [parameter.detach().clone() for parameter in parameters]
    first, count = list(now), len(now)
    reads: dict[tuple[int, int], list[torch.Tensor]] = {}
    gradients: dict[tuple[int, int], list[torch.Tensor]] = {}
    left: dict[tuple[int, int], int] = {}
    begin = process_time()
    for what, rows in events([schedule]):
        _, worker, step, tensor, *_ = rows[0]
        key = worker, step
        if what == "read":
            reads.setdefault(key, first.copy())[tensor] = now[tensor]
        elif what == "update":
            if key not in gradients:
                values = reads.pop(key, first)
                for parameter, value in zip(parameters, values, strict=True):
                    parameter.data = value
                chosen = torch.from_numpy(samplers[worker].next())
                loss = cross_entropy(module(data.train_x[chosen]), data.train_y[chosen])
                loss.item()
                gradients[key] = list(torch.autograd.grad(loss, parameters))
                left[key] = count
            now[tensor] = now[tensor].sub(gradients[key][tensor], alpha=LR)
            left[key] -= 1
            if not left[key]:
                del gradients[key]
    return process_time() - begin, torch.cat([each.reshape(-1) for each in now])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    data = load_data("digits")
    print("model                      batch   W  way     us/step  of plain  aim   difference")
    for model, batch, workers, updates, *aims in CASES:
        tensors = dict(build_model(model, data, 0).module.named_parameters())
        sizes = [tensor.numel() for tensor in tensors.values()]
        schedule = make_schedule(sizes, workers, updates)
        steps = len(schedule.updates) / len(sizes)
        configs = {
            way: TrainConfig.model_validate(
                {
                    "model": model,
                    "batch": batch,
                    "workers": workers,
                    "lr": LR,
                    "updates": updates,
                    "evaluate_every": 10 * updates,
                    "lookahead": way,
                }
            )
            for way in ("off", "auto")
        }
        times: dict[str, list[float]] = {"plain": [], "off": [], "auto": []}
        ends: dict[str, torch.Tensor] = {}
        for _ in repeat(None, repeats):
            seconds, ends["plain"] = plainly(schedule, data, model, batch, workers)
            times["plain"].append(seconds)
            for way, config in configs.items():
                marks = []
                for blocks in ([], [schedule]):  # without a schedule everything else is done
                    begin = process_time()
                    result = train_on_schedule(config, blocks, tuple(tensors), SEED)
                    marks.append(process_time() - begin)
                times[way].append(marks[1] - marks[0])
                ends[way] = result.parameters
        plain = times["plain"]
        for (way, taken), aim in zip(times.items(), ("", *map(str, aims)), strict=True):
            ratio = statistics.median(a / b for a, b in zip(taken, plain, strict=True))
            off = float((ends[way] - ends["plain"]).abs().max())
            print(
                f"{model:26} {batch:5} {workers:3}  {way:6} "
                f"{statistics.median(taken) * 1e6 / steps:8.0f} {ratio:9.2f}  {aim:4}  {off:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
