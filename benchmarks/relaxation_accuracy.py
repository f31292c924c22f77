"""Table 4: run times of real threads beside simulated ones; and replays of recorded runs.

    python benchmarks/relaxation_accuracy.py [--repeats N] [--grids 20,100] [--threads 1,2]

Real threads solve 2-D Laplacians to a residual of 1e-6, SAFE and RACE, with timers and without.
The measured durations of copy, compute and update, drawn together, then drive simulated threads:
each with a core of its own, and on the run queue of this machine's cores with the time slices and
the foreign load that the measurement shows. The residual thread takes a core as well, so 1 thread
means 2 cores.

Machines change their speed, shared ones a lot. So every repetition measures and simulates anew, and
the ratios are medians over repetitions of simulated over measured: over the run with timers, whose
durations drive the simulation, and over the run without, which may have met another machine.
Spreads are least and largest.

Replay: recorded starts and ends of real runs with 2 to 8 threads are played in the simulation; it
should find the residual thread's detecting check, or a neighbour of it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paracosm.relaxation.problems import Problem, load_problem
from paracosm.relaxation.threads import Case, Limits, Measurement, measure, phases, run_threads

sys.path.append(str(Path(__file__).parent / "accuracy"))

from recorded_threads import RunQueue, replay, simulate_threads

TOLERANCE = 1e-6
REPLAYED = ((2, "race"), (3, "safe"), (4, "race"), (6, "safe"), (8, "race"))
SLICE = 0.003  # seconds, where none was seen


@dataclass
class Line:
    """What the repetitions of one case gave: seconds, shares of the run on a core, foreign load."""

    timed: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)

    def add(self, problem: Problem, measured: Measurement, case: Case, seed: int) -> None:
        """Simulate what was measured, and note both."""
        durations = phases(measured, case.variant, case.threads)
        seen = case.interruptions
        cores = int(measured.environment["cores"])
        queue = RunQueue(cores, seen.slices or (SLICE,), round(seen.load))
        threshold = measured.threshold
        alone = simulate_threads(problem, durations, threshold, seed=seed)
        queued = simulate_threads(problem, durations.on_core(), threshold, queue=queue, seed=seed)
        self.timed += case.times(timed=True).tolist()
        self.plain += case.times(timed=False).tolist()
        self.alone.append(alone.time)
        self.queued.append(queued.time)
        self.share.append(seen.share)
        self.load.append(seen.load)

    def __str__(self) -> str:
        cells = [spread(self.timed), spread(self.plain)]
        for simulated in (self.alone, self.queued):
            cells.append(spread(simulated))
            cells += [f"{ratio(simulated, real):>6.2f}" for real in (self.timed, self.plain)]
        return f"{' '.join(cells)} {np.median(self.share):>6.0%} {np.median(self.load):>5.1f}"


def ratio(simulated: list[float], measured: list[float]) -> float:
    """Return the median of the ratios, repetition by repetition."""
    return float(np.median(np.array(simulated) / np.array(measured)))


def spread(times: list[float]) -> str:
    """Return median, least and largest in milliseconds."""
    low, high = 1e3 * min(times), 1e3 * max(times)
    return f"{1e3 * np.median(times):>8.4g} {f'({low:.4g}-{high:.4g})':<17}"


def replays(grid: int, runs: int) -> None:
    """Print a line for each replayed run, and the score."""
    problem = load_problem(f"laplace2d:{grid}", rhs="ones-solution")
    limits = Limits(recorded=1 << 20)
    within = 0
    for number in range(runs):
        threads, variant = REPLAYED[number % len(REPLAYED)]
        run = run_threads(problem, variant, threads, TOLERANCE, lingering=20, limits=limits)
        recording = run.recording
        assert recording is not None
        if not recording.complete:
            print(f"{threads} threads, {variant}: too long to be recorded")
            continue
        result = replay(problem, recording, TOLERANCE)
        late = result.late_by
        within += late is not None and abs(late) <= 1
        print(
            f"{threads} threads, {variant}: {run.time:.4g} s, detected at check "
            f"{recording.detecting}, replay "
            f"{'later' if late is None else f'{late:+d}'}, largest difference of the iterates "
            f"{np.abs(result.x - run.x).max():.1e}",
            flush=True,
        )
    print(f"within one check: {within} of {runs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--grids", default="20,100")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--replays", type=int, default=10)
    arguments = parser.parse_args()
    threads = [int(number) for number in arguments.threads.split(",")]
    print(
        f"{'problem':14} {'':5} thr {'with timers (ms)':26} {'without (ms)':26} "
        f"{'a core each (ms)':26} / with   w/o {'run queue (ms)':26} / with   w/o on core  load"
    )
    for grid in arguments.grids.split(","):
        problem = load_problem(f"laplace2d:{grid}", rhs="ones-solution")
        lines: dict[tuple[str, int], Line] = {}
        for seed in range(arguments.repeats):
            measured = measure(
                problem,
                ("safe", "race"),
                threads,
                tolerance=TOLERANCE,
                repeats=1,
                seed=seed,
                kept=50_000,
            )
            for case in measured.cases:
                line = lines.setdefault((case.variant, case.threads), Line())
                line.add(problem, measured, case, seed)
        for (variant, count), line in lines.items():
            print(f"{problem.name:14} {variant:5} {count:>3} {line}", flush=True)
    replays(int(arguments.grids.split(",")[0]), arguments.replays)


if __name__ == "__main__":
    main()
