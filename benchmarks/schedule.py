"""Timing-only mode at scale, and real gradients of a thousand workers: seconds and memory.

    python benchmarks/schedule.py

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys

SERIAL = {"sharing": "serial", "pipelined": False}

CASES = (
    (
        "10,000 workers x 100 steps, timing only, serialised ports",
        "10 s",
        {
            "algorithm": "asgd",
            "workers": 10_000,
            "updates": 1_000_000,
            "latency": "1us",
            **SERIAL,
            "timing_only": True,
            "timeline": False,
        },
    ),
    (
        "10,000 workers x 100 rounds, timing only, synchronous",
        "10 s",
        {
            "algorithm": "ssgd",
            "workers": 10_000,
            "updates": 100,
            "latency": "1us",
            **SERIAL,
            "timing_only": True,
            "timeline": False,
        },
    ),
    (
        "1,024 workers, real gradients of the small MLP",
        "2 GB",
        {
            "algorithm": "staleness-aware",
            "workers": 1024,
            "updates": 5120,
            "latency": "1us",
            "timeline": False,
        },
    ),
)

PROGRAM = """
import json, resource, sys, time
from paracosm.training import TrainConfig, train

class Count:
    rows = 0
    def metric(self, *row):
        self.rows += 1

config = TrainConfig.model_validate(json.loads(sys.argv[1]))
began = time.perf_counter()
summary = train(config, metrics=Count()).summary
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, peak, summary["mean_staleness"], summary["virtual_time"]]))
"""


def main() -> None:
    for name, aim, arguments in CASES:
        command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, peak, staleness, virtual_time = json.loads(done.stdout)
        print(
            f"{name}: {seconds:.1f} s, {peak / 1e9:.2f} GB, aim {aim} "
            f"(mean staleness {staleness:.1f}, virtual time {virtual_time:.3f} s)"
        )


if __name__ == "__main__":
    main()
