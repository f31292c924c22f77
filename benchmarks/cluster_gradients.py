"""Look-ahead gradients of one large simulation: two workers of a Dask cluster against one.

    python benchmarks/cluster_gradients.py [--workers N] [--batch N] [--repeats N]

1,024 asynchronous workers train resnet20 on images of 3 x 32 x 32 pixels of noise (a gradient
takes as long as on any others), one update each. Clusters are local, of workers with one thread,
and have computed a few gradients before the clock starts. They take turns; printed are the seconds
of each, and the ratio of their medians: 1.7 is aimed at. Losses must agree to the bit.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from stored_results import store_result

from paracosm.backends import HERE, Backend
from paracosm.training import TrainConfig, TrainingResult, train


def images() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a data set of noise: train_x, train_y, test_x, test_y."""
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(2100, 3, 32, 32, generator=drawn), torch.arange(2100) % 10
    return x[:2048], y[:2048], x[2048:], y[2048:]


def timed(backend: Backend, workers: int, batch: int) -> tuple[float, TrainingResult]:
    config = TrainConfig.model_validate(
        {
            "model": "resnet20",
            "data": "cluster_gradients:images",
            "workers": workers,
            "batch": batch,
            "updates": workers,
            "compute": "lognormal(100ms, 0.1)",
            "evaluate_every": 2 * workers,
            "evaluate_examples": 10,
            "lookahead": "off" if backend == HERE else "processes",
            "timeline": False,
        }
    )
    begin = time.perf_counter()
    result = train(config, backend=backend)
    return time.perf_counter() - begin, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    clusters = {number: Backend("dask", jobs=number) for number in (1, 2)}
    for backend in clusters.values():
        timed(backend, 32, options.batch)
    taken: dict[int, list[float]] = {number: [] for number in clusters}
    losses = set()
    for _ in range(options.repeats):
        for number, backend in clusters.items():
            seconds, result = timed(backend, options.workers, options.batch)
            taken[number].append(seconds)
            losses.add(result.summary.final_loss)
            print(f"{number} of Dask's workers: {seconds:.1f} s", flush=True)
    assert len(losses) == 1, losses
    here, _ = timed(HERE, options.workers, options.batch)
    print(f"one by one in this process: {here:.1f} s")
    one, two = (statistics.median(taken[number]) for number in clusters)
    print(f"one / two = {one / two:.2f}")
    store_result(
        "gradients of 1,024 workers of resnet20 on two 1-core workers of Dask, against one",
        f"{one / two:.2f} times as fast",
    )


if __name__ == "__main__":
    main()
