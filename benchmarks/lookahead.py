"""Whole runs against a plain PyTorch loop: the time of a gradient, one by one and look-ahead.

    python benchmarks/lookahead.py [--repeats N]

The transformer is the one of `examples/diloco`, 32 characters an example. The plain loop is what
one would write for one worker without a cluster: minibatch, loss, backward,
step. A run is timed from its first event to its last, one by one (`--lookahead off`) and as `auto`
decides, without the evaluations before and after. Times are of the processor, on one
thread; ratios are medians over interleaved repetitions. The losses of the two runs are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import process_time

import numpy as np
import torch
from stored_results import store_result
from torch.nn.functional import cross_entropy

from paracosm.engine import Simulator
from paracosm.models import load_data
from paracosm.models.build import build_model
from paracosm.results import TrainingSummary
from paracosm.training import TrainConfig, train

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "diloco"))

DIGITS = "digits"
CASES = (
    # model, data, batch, workers, updates, what is aimed at for look-ahead
    ("mlp", DIGITS, 32, 1, 2000, "at most 1.05"),
    ("mlp", DIGITS, 10, 16, 3000, "0.20"),
    ("mlp", DIGITS, 32, 16, 3000, "0.20"),
    ("mlp", DIGITS, 100, 16, 2000, ""),
    ("mlp", DIGITS, 10, 64, 3000, "0.20"),
    ("mlp", DIGITS, 32, 64, 3000, "0.20"),
    ("mlp", DIGITS, 100, 64, 2000, ""),
    ("paper-cnn", DIGITS, 10, 1, 60, "at most 1.05"),
    ("paper-cnn", DIGITS, 10, 16, 60, "at most 1.05"),
    ("language:model", "language:data", 1, 16, 600, "0.7"),
    ("language:model", "language:data", 4, 16, 400, "0.7"),
    ("language:model", "language:data", 4, 64, 400, "0.7"),
    ("language:model", "language:data", 16, 16, 200, "at most 1.05"),
)
LR = 0.01
BESIDE_A_LOOP = (
    "64 workers, small MLP, minibatch 10: look-ahead batching against a plain PyTorch loop over "
    "the same gradients"
)


def plain(model: str, name: str, batch: int, updates: int) -> float:
    """Return the seconds that a plain loop takes."""
    torch.set_num_threads(1)
    data = load_data(name)
    module = build_model(model, data, 0).module.train()
    optimizer = torch.optim.SGD(module.parameters(), LR)
    chosen = np.random.default_rng(0).integers(0, len(data.train_x), (updates, batch))
    begin = process_time()
    for indices in torch.from_numpy(chosen):
        optimizer.zero_grad()
        loss = cross_entropy(module(data.train_x[indices]), data.train_y[indices])
        loss.backward()
        optimizer.step()
        loss.item()
    return process_time() - begin


def simulated(
    model: str, data: str, batch: int, workers: int, updates: int, lookahead: str
) -> tuple[float, TrainingSummary]:
    """Return the seconds from the first event of a run to its last, and its summary."""
    config = TrainConfig.model_validate(
        {
            "model": model,
            "data": data,
            "batch": batch,
            "workers": workers,
            "updates": updates,
            "lookahead": lookahead,
            "lr": LR,
            "algorithm": "staleness-aware",
            "compute": "lognormal(20ms, 0.1)",
            "evaluate_every": 2 * updates,
            "timeline": False,
        }
    )
    spent = 0.0
    original = Simulator.run

    def timed(sim: Simulator, until: float | None = None) -> None:
        nonlocal spent
        begin = process_time()
        original(sim, until)
        spent = process_time() - begin

    Simulator.run = timed  # type: ignore[method-assign]
    try:
        summary = train(config).summary
    finally:
        Simulator.run = original  # type: ignore[method-assign]
    return spent, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help="such models alone")
    arguments = parser.parse_args()
    repeats = arguments.repeats
    print("model          batch    W      plain  one by one     look-ahead  aim")
    for model, data, batch, workers, updates, aim in CASES:
        if arguments.only not in (None, model):
            continue
        job = model, data, batch, workers, updates
        times: dict[str, list[float]] = {"plain": [], "off": [], "auto": []}
        losses, chosen = {}, ""
        for number in range(repeats + 1):
            taken = {"plain": plain(model, data, batch, updates)}
            for lookahead in ("off", "auto"):
                taken[lookahead], summary = simulated(*job, lookahead)
                losses[lookahead], chosen = summary.final_loss, summary.lookahead
            if number:  # the first repetition warms up
                for name, seconds in taken.items():
                    times[name].append(seconds)
        alone = statistics.median(times["plain"]) * 1e6 / updates
        ratios = {
            name: statistics.median(a / b for a, b in zip(times[name], times["plain"], strict=True))
            for name in ("off", "auto")
        }
        print(
            f"{model:14} {batch:5} {workers:4} {alone:7.0f} us  x{ratios['off']:9.2f}"
            f"  x{ratios['auto']:12.2f}  {aim}"
        )
        if (model, batch, workers) == ("mlp", 10, 64):
            store_result(BESIDE_A_LOOP, f"{1 / ratios['auto']:.1f} times as fast")
        print(f"{'':14} {chosen}; final losses {losses['off']:.6g} and {losses['auto']:.6g}")


if __name__ == "__main__":
    main()
