"""What a gradient costs: one by one, together by vmap, and on processes.

    python benchmarks/gradients.py

Prints, for each model and minibatch of digits, the median of milliseconds a gradient over
interleaved repetitions on one thread, and how many times faster than one by one that is. Every
gradient has parameters of its own, as in asynchronous SGD.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter

import numpy as np
import torch

from paracosm.models import load_data
from paracosm.models.build import build_model
from paracosm.training.numerics.gradients import make_gradients
from paracosm.training.numerics.parameters import ParameterLayout

CASES = (("mlp", 10), ("mlp", 100), ("paper-cnn", 10), ("resnet20", 10))
FLIGHTS = (16, 64, 256)
PROCESSES_FLIGHT = 16


def measure(name: str, batch: int, seconds: float) -> dict[str, list[float]]:
    """Return the seconds a gradient of every way to compute it, one for each repetition."""
    data = load_data("digits")
    rng = np.random.default_rng(0)
    ways = [("one by one", "off", 16), (f"processes {PROCESSES_FLIGHT}", "processes", 16)]
    if name != "resnet20":  # batch normalisation changes buffers: nothing for vmap
        ways += [(f"vmap {flight}", "vmap", flight) for flight in FLIGHTS]
    sources = []
    for title, mode, flight in ways:
        model = build_model(name, data, seed=0)
        layout = ParameterLayout.of(model.module)
        source = make_gradients(model, layout, data, mode, flight)
        sources.append((title, source, [layout.flatten(model.module) for _ in range(flight)]))
    times: dict[str, list[float]] = {title: [] for title, _, _ in ways}
    end = None
    while end is None or perf_counter() < end:
        for title, source, parameters in sources:
            batches = rng.integers(0, len(data.train_x), (len(parameters), batch))
            pending = [
                source.request(flat, indices)
                for flat, indices in zip(parameters, batches, strict=True)
            ]
            begin = perf_counter()
            for request in pending:
                request.result()
            if end is not None:  # the first round warms up
                times[title].append((perf_counter() - begin) / len(pending))
        end = end or perf_counter() + seconds
    for _, source, _ in sources:
        source.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model and minibatch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, batch in CASES:
        times = measure(name, batch, arguments.seconds)
        alone = statistics.median(times["one by one"])
        print(f"{name}, minibatch {batch}")
        for title, samples in times.items():
            median, low, high = statistics.median(samples), min(samples), max(samples)
            print(
                f"  {title:14} {1e3 * median:8.3f} ms  ({1e3 * low:.3f} to {1e3 * high:.3f}, "
                f"{len(samples)} samples)  x{alone / median:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
