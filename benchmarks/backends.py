"""A sweep of 2,000 short runs on nine workers of a local Dask cluster, and on loky's processes.

    python benchmarks/backends.py [--points N] [--workers N] [--updates N]

Processes and workers are started, and have made a run each, before the clock starts. The two take
turns; printed are the seconds of each, and the ratio of their medians: 1.05 is aimed at.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from paracosm.backends import Backend
from paracosm.studies import Study, run_sweep

REPEATS = 3


def sweep(backend: Backend, points: int, updates: int) -> float:
    """Return the seconds that a sweep of so many runs takes."""
    study = Study.model_validate(
        {
            "train": {
                "timing_only": True,
                "updates": updates,
                "workers": 4,
                "algorithm": "ssp(slack=3)",
                "message_size": "1MB",
                "bandwidth": "10Gbit/s",
                "compute": "lognormal(20ms, 0.3)",
            },
            "over": {"seed": list(range(points))},
        }
    )
    listed = study.points("benchmark")
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        rows = run_sweep(study, listed, Path(folder, "sweep"), backend)
        taken = time.perf_counter() - begin
    assert all(row.summary.status == "done" for row in rows)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=9)
    parser.add_argument("--updates", type=int, default=500)
    options = parser.parse_args()
    backends = {name: Backend(name, options.workers) for name in ("loky", "dask")}
    for backend in backends.values():
        sweep(backend, 8 * options.workers, options.updates)
    taken: dict[str, list[float]] = {name: [] for name in backends}
    for _ in range(REPEATS):
        for name, backend in backends.items():
            taken[name].append(sweep(backend, options.points, options.updates))
            print(f"{name}: {taken[name][-1]:.2f} s", flush=True)
    loky, dask = (statistics.median(taken[name]) for name in ("loky", "dask"))
    print(f"{options.points} runs on {options.workers} workers: dask / loky = {dask / loky:.3f}")


if __name__ == "__main__":
    main()
