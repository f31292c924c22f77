"""Figures 17, 18, 19 and 25 with a real job: enforced orders, and a second server.

The job of `own_run.py`, without biases, is profiled with one worker, whose server sends tensors as
they are needed (TicTac's TIC). From that profile, and no other measurement, its throughput is
predicted in that order, in the reverse of it, in a random one, and with a second server; then
each is measured. Streams are whole, as without HTTP/2's flow control.

    python orders_and_servers.py                     # twenty minutes
    python orders_and_servers.py --again measured    # table of what was measured before
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from own_run import HERE, WAITING
from own_table import throughput

from paracosm.errors import InputError
from paracosm.profiling.jobs import DOWNLINK, JobProfile, load_job_profile, save_job_profile
from paracosm.profiling.jobs.pytorch import JobOptions
from paracosm.profiling.processes import WorkerError

sys.path.append(str(Path(__file__).parents[2] / "time_to_accuracy"))
sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "accuracy"))

from real_training import real_training
from shaped_network import INSIDE, build, may_shape, prepare_namespaces, put_first, start_inside

MEASURED = "orders_and_servers.json"
WORKERS = (1, 3, 6)
SECONDS = 40.0
ROUNDS = 2
SEED = 1  # of the random order
MODEL = f"{HERE / 'own_model.py'}:make_model_without_biases"
TENSORS = 8
AS_NEEDED = "as needed (TIC)"
TWO_SERVERS = "two servers"


def main() -> int:
    """Measure, predict and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="of an earlier measurement")
    parser.add_argument("--out", type=Path, default=Path("runs/orders"), help="folder to write")
    parser.add_argument("--rate", type=float, default=200.0, help="Mbit/s of the links (200)")
    options = parser.parse_args()
    try:
        if options.again is None:
            if not may_shape():
                raise InputError("the links cannot be shaped here: run as root on Linux")
            if not os.environ.get(INSIDE):
                start_inside(sys.argv)
            measure(options.out, options.rate)
        print(table(options.again or options.out))
    except (InputError, WorkerError) as error:
        print(f"orders_and_servers.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def orders() -> dict[str, list[int]]:
    """Return the tensors' numbers in the order in which servers send them."""
    numbers = list(range(TENSORS))
    shuffled = np.random.default_rng(SEED).permutation(TENSORS).tolist()
    return {AS_NEEDED: numbers, "reverse": numbers[::-1], "random": shuffled}


def measure(folder: Path, rate: float) -> None:
    """Measure every design with each number of workers, in rounds, after the profiles."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare_namespaces()
    runs = []
    for servers in (1, 2):
        nodes = build(servers, max(WORKERS), rate, name=f"n{servers}")
        options = JobOptions(MODEL, batch=1, waiting=WAITING, nodes=nodes, servers=servers)
        designs = orders() if servers == 1 else {TWO_SERVERS: list(range(TENSORS))}
        with real_training(options, max(WORKERS)) as job:
            if not put_first(job.pids):
                _say("without real-time priority: what else runs here will show in the times")
            profile = job.profile(30)
            if servers == 1:
                save_job_profile(profile, folder / "orders.profile")
            step = float((profile.step_end - profile.step_begin).mean())
            for number in range(ROUNDS):
                for name, sending in designs.items():
                    for workers in WORKERS:
                        run = job.train(
                            workers, seconds=SECONDS, stagger=step / workers, sending=sending
                        )
                        steps = run.schedule.steps
                        ends = [
                            (np.sort(steps["end"][steps["worker"] == each]) / 1e9).round(1).tolist()
                            for each in range(workers)
                        ]
                        found = {"design": name, "W": workers, "round": number, "end_ms": ends}
                        runs.append({**found, "load": run.facts["load"]})
                        lines = ",\n".join(map(json.dumps, runs))
                        (folder / MEASURED).write_text(f"[\n{lines}\n]\n")
                        _say(f"{name}, {workers} workers: {throughput(runs[-1]):.2f} steps/s")


def table(folder: Path) -> str:
    """Return measured and predicted steps/s, of the same window and of the steady state."""
    runs = json.loads((folder / MEASURED).read_text())
    lines = [
        "| design | workers | measured | same window | error | steady state | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for design in (*orders(), TWO_SERVERS):
        predicted = _predict(folder / "orders.profile", design)
        errors = []
        for workers in WORKERS:
            rates = [throughput(run) for run in runs if _is_of(run, design, workers)]
            measured = float(np.mean(rates))
            errors.append([each / measured - 1 for each in predicted[workers]])
            window, steady = predicted[workers]
            lines.append(
                f"| {design} | {workers} | {measured:.2f} ({min(rates):.2f} to {max(rates):.2f}) | "
                f"{window:.2f} | {errors[-1][0]:+.1%} | {steady:.2f} | {errors[-1][1]:+.1%} |"
            )
        means = np.abs(errors).mean(axis=0)
        lines.append(f"| {design} | mean | | | {means[0]:.1%} | | {means[1]:.1%} |")
    return "\n".join(lines)


def _is_of(run: dict[str, Any], design: str, workers: int) -> bool:
    return run["design"] == design and run["W"] == workers


def _predict(profile: Path, design: str) -> dict[int, tuple[float, float]]:
    """Return steps/s of the measured window and of the steady state, by workers."""
    own = load_job_profile(profile)
    command = [
        *(sys.executable, "-m", "paracosm.cli.app", "predict", str(profile), "--json"),
        *("--workers", ",".join(map(str, WORKERS)), "--bandwidth", f"{own.bandwidth:.0f}B/s"),
        *("--no-flow-control", "--start", "staggered", "--measure", f"{SECONDS}s"),
    ]
    with tempfile.NamedTemporaryFile("w") as listed:
        if design == TWO_SERVERS:
            command += ["--servers", "2"]
        elif design != AS_NEEDED:
            listed.write("\n".join(_names(own, orders()[design])) + "\n")
            listed.flush()
            command += ["--order", listed.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    rows = json.loads(done.stdout)["throughput"]
    return {
        row["workers"]: (row["after_start"]["steps_per_second"], row["steps_per_second"])
        for row in rows
    }


def _names(profile: JobProfile, sending: Sequence[int]) -> list[str]:
    pulls = [profile.names[op] for op in np.flatnonzero(profile.resource == DOWNLINK)]
    assert len(pulls) == TENSORS
    return [pulls[number] for number in sending]


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
