"""Processor time of a search for the fastest strategy, from typing the command to its answer.

    python benchmarks/strategy_search.py

The first run of a machine compiles; the least of those after it counts, with all that Python and
the libraries take to start. Time of the processor, not of the clock: another program beside it
makes it longer, but not by as much.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from stored_results import store_result

COMMAND = "predict --model llama-8b --hardware h100-sxm --strategy auto --workers 64"
RUNS = 3


def main() -> int:
    """Run the command a few times, print and store the least processor time."""
    run = [sys.executable, "-m", "paracosm", *COMMAND.split(), "--quiet"]
    subprocess.run(run, check=True)
    seconds = list[float]()
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(run, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    measured = f"{min(seconds):.1f} s"
    print(f"paracosm {COMMAND}: {measured} of the processor, the least of {RUNS} runs")
    store_result(
        "search of 480 strategies for Llama 3 8B on 64 H100, with Python's start", measured
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
