"""Asynchronous training with 1 to 6 workers from the profile of one, beside what was measured.

    python benchmarks/accuracy/psthroughput.py [FOLDER] [--repeats N]

FOLDER holds index.json and a folder for each configuration (profile.json.gz, runs.json.gz); without
it, the folder `psthroughput` of the one that the variable PARACOSM_DATA names. docs/accuracy.md
says what comes out.

Nothing is fitted to any measured run: profile and goodput of the link go in. Two tables:

1. the steady state, beside the mean of all runs of so many workers, with the errors of Lin et al.'s
   and Cynthia's models of the same profile;
2. every run beside simulations of the same window after the same start: their mean and standard
   deviation, and how many of these the run is away from the mean.

Of `LONG` there are runs of five minutes as well, made with the same set-up on another day: in them
the start is forgotten, and the steady state is what they measure.

*best possible* is the mean error of a model that knows the distribution of the windows exactly: one
run is one draw of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from printing import folder_of, mape, print_table, signed

from paracosm.cluster import Link, star
from paracosm.prediction.parameter_servers.coarse_models import cynthia, lin, phases_of
from paracosm.prediction.parameter_servers.config import WINDOW, Settings, ports_of
from paracosm.prediction.parameter_servers.target import (
    TargetJob,
    target_job,
)
from paracosm.prediction.parameter_servers.throughput import predict_throughput, rate_after_start
from paracosm.profiling.jobs import load_job_profile
from paracosm.profiling.jobs.job_profile import without_interrupted

SEED = 1
LONG = "alex200_c09"
LONG_RUNS = Path("examples/papers/throughput_prediction/measured/long_runs.json")
NORMAL = 0.7979  # mean distance from the mean, in standard deviations


@dataclass(frozen=True)
class Run:
    """One measured run.

    Attributes:
        workers, seconds, stagger: how it was made.
        rate: steps/s, as it was measured.
        expected, spread: mean and standard deviation of simulated ones.
    """

    workers: int
    seconds: float
    stagger: float
    rate: float
    expected: float
    spread: float


def main() -> int:
    """Print both tables for every configuration, and what they come to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of configurations")
    parser.add_argument("--repeats", type=int, default=40, help="simulated windows of each run")
    parser.add_argument(
        "--uneven", type=float, default=0.0, help="standard deviation of ln(share of a flow)"
    )
    asked = parser.parse_args()
    folder = folder_of(asked, "psthroughput", "measured throughput")
    if folder is None:
        return 2
    steady: list[tuple[float, ...]] = []
    windows: list[Run] = []
    for about in json.loads((folder / "index.json").read_text()):
        job = job_of(folder / about["name"], about, asked.uneven)
        with gzip.open(folder / about["name"] / "runs.json.gz", "rt") as file:
            runs = list(runs_of(json.load(file)["runs"], job, asked.repeats))
        print(f"\n{about['name']}: {about['share']} queue, {job.workload.steps} profiled steps")
        steady += print_steady(job, runs)
        print_windows(runs)
        windows += runs
        if about["name"] == LONG:
            print("\nruns of five minutes, another day")
            found = json.loads((Path(__file__).parents[2] / LONG_RUNS).read_text())["runs"]
            long = list(runs_of(found, job, asked.repeats))
            print_steady(job, long)
            print_windows(long)
    print("\nall configurations")
    columns = ("steady state", "Lin et al.", "Cynthia", "Cynthia, half T_C")
    rows = [
        (name, f"{mape(errors):.1%}", signed(max(errors, key=abs)))
        for name, errors in zip(columns, zip(*steady, strict=True), strict=True)
    ]
    errors = [run.rate and run.expected / run.rate - 1 for run in windows]
    rows.append(("same windows", f"{mape(errors):.1%}", signed(max(errors, key=abs))))
    best = float(np.mean([NORMAL * run.spread / run.expected for run in windows]))
    rows.append(("same windows, best possible", f"{best:.1%}", ""))
    print_table(("", "mean error", "worst"), rows)
    away = np.array([_away(run) for run in windows if run.workers > 1])
    print(
        f"runs of several workers: {np.mean(np.abs(away) < 1):.0%} within one standard deviation "
        f"of the simulated mean (68% if all is right), {np.mean(np.abs(away) < 2):.0%} within two "
        f"(95%); in the mean {away.mean():+.2f} of them away, standard deviation {away.std():.2f}"
    )
    return 0


def job_of(folder: Path, about: dict[str, Any], uneven: float) -> TargetJob:
    """Return the profiled job on its measured link, with as many workers as were ever run."""
    profile = without_interrupted(load_job_profile(folder / "profile.json.gz"))
    cluster = star(6, about["P"], Link(bandwidth=about["goodput_mbit"] * 1e6 / 8))
    settings = Settings(ports=ports_of(cluster), window=WINDOW, share_sigma=uneven)
    return target_job(profile, settings, SEED)


def runs_of(found: list[dict[str, Any]], job: TargetJob, repeats: int) -> Iterator[Run]:
    """Yield the measured runs, each with what simulations of the same window say."""
    for run in sorted(found, key=lambda run: (run["W"], run["stagger_s"])):
        ends = [np.array(each, float) / 1e3 for each in run["end_ms"]]
        longest = max(len(end) for end in ends)
        table = np.full((len(ends), longest), np.nan)
        for row, end in zip(table, ends, strict=True):
            row[: len(end)] = end
        same = replace(
            job.settings,
            start="staggered" if run["stagger_s"] else "together",
            stagger=run["stagger_s"],
            measure=float(run["seconds"]),
            repeats=repeats,
            steps=400,
        )
        predicted = predict_throughput(replace(job, settings=same), run["W"], SEED).after_start
        assert predicted is not None
        yield Run(
            workers=run["W"],
            seconds=run["seconds"],
            stagger=run["stagger_s"],
            rate=rate_after_start(table, np.inf),
            expected=predicted.steps_per_second,
            spread=predicted.spread,
        )


def print_steady(job: TargetJob, runs: list[Run]) -> list[tuple[float, ...]]:
    """Print the steady state of each number of workers; return the errors of all models."""
    numbers = sorted({run.workers for run in runs})
    phases = phases_of(job)
    coarse = lin(phases, max(numbers))
    bandwidth = float(job.settings.ports.server.min())
    rows, errors = [], []
    for workers in numbers:
        measured = np.mean([run.rate for run in runs if run.workers == workers])
        found = predict_throughput(job, workers, SEED)
        models = (
            found.steps_per_second,
            float(coarse[workers - 1]),
            cynthia(phases, bandwidth, workers),
            cynthia(phases, bandwidth, workers, duplex=True),
        )
        errors.append(tuple(float(model / measured - 1) for model in models))
        rows.append((str(workers), f"{measured:.3f}", f"{models[0]:.3f}", *map(signed, errors[-1])))
    rows.append(("mean", "", "", *(f"{mape(each):.1%}" for each in zip(*errors, strict=True))))
    print_table(
        ("workers", "measured", "predicted", "error", "Lin et al.", "Cynthia", "half T_C"), rows
    )
    return errors


def print_windows(runs: list[Run]) -> None:
    """Print every run beside the simulated ones."""
    print()
    print_table(
        ("workers", "start", "measured", "simulated", "+-", "error", "deviations"),
        [
            (
                str(run.workers),
                f"{run.stagger:.2f} s apart" if run.stagger else "together",
                f"{run.rate:.3f}",
                f"{run.expected:.3f}",
                f"{run.spread:.3f}",
                signed(run.expected / run.rate - 1),
                f"{_away(run):+.1f}" if run.workers > 1 else "",
            )
            for run in runs
        ],
        left=2,
    )


def _away(run: Run) -> float:
    return (run.rate - run.expected) / run.spread


if __name__ == "__main__":
    sys.exit(main())
