"""Tables 1, 3 and 4 and figures 7 to 9: threads of this machine, measured and simulated."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation import relax
from paracosm.relaxation.problems import Problem, load_problem
from paracosm.relaxation.threads import Case, Limits, Measurement, measure, phases, run_threads

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "accuracy"))

from recorded_threads import RunQueue, replay, simulate_threads

Array = NDArray[np.float64]

SOLVERS = ("safe", "race")
SLICE = 0.003  # seconds that a thread keeps its core, where no interruption was seen
ON_CORE = 0.95  # of the run: then every thread had a core


@dataclass(frozen=True)
class Settings:
    """How much is measured: the paper's sizes, shorter runs."""

    side: int  # of the grid of tables 1 and 4 (the paper: 100)
    tolerance: float
    plate: int  # side of the grid of table 3 (the paper: 600)
    plate_iterations: int
    threads: tuple[int, ...]
    repeats: int
    replays: int


FULL = Settings(100, 0.1, 600, 300, (1, 2, 4), 3, 5)
QUICK = Settings(20, 1e-2, 100, 200, (1,), 1, 2)


@dataclass(frozen=True)
class Compared:
    """A row of table 4: seconds to convergence on the grid `side` x `side`.

    `measured` without timers; `simulated` with a core for every thread; `queued` on this machine's
    cores with the time slices and the foreign load that were seen. `iterations` are those of all
    relaxation threads, simulated over measured. `share` is the part of the run that the threads
    were on a core.
    """

    side: int
    tolerance: float
    variant: str
    threads: int
    measured: Array
    simulated: Array
    queued: Array
    iterations: float
    share: float
    load: float


@dataclass(frozen=True)
class Replayed:
    """A recorded run, played again: by how many residual checks the detection was late."""

    variant: str
    threads: int
    late_by: int | None


@dataclass(frozen=True)
class Real:
    """What the threads of this machine did."""

    solver: Measurement
    plate: Measurement
    compared: tuple[Compared, ...]
    replayed: tuple[Replayed, ...]


def measure_machine(settings: Settings, folder: Path) -> Real:
    """Measure, simulate what was measured, and replay; write what `--time` reads to `folder`."""
    solver, compared = _compare(settings.side, settings.tolerance, settings, folder)
    if settings.side != 20:  # the paper's table 4
        compared = [*_compare(20, 1e-6, settings, folder)[1], *compared]
    plate = measure(
        load_problem(f"heat2d:{settings.plate}"),
        ("stencil",),
        settings.threads,
        repeats=settings.repeats,
        limits=Limits(iterations=settings.plate_iterations),
    )
    plate.save(folder / "measured_plate.json")
    return Real(solver, plate, tuple(compared), tuple(_replay(settings.replays)))


def _compare(
    side: int, tolerance: float, settings: Settings, folder: Path
) -> tuple[Measurement, list[Compared]]:
    problem = load_problem(f"laplace2d:{side}", rhs="ones-solution")
    measured = measure(
        problem, SOLVERS, settings.threads, tolerance=tolerance, repeats=settings.repeats
    )
    file = folder / f"measured_{side}.json"
    measured.save(file)
    return measured, [
        _simulate(side, problem, measured, case, file, settings.repeats) for case in measured.cases
    ]


def _simulate(
    side: int, problem: Problem, measured: Measurement, case: Case, file: Path, repeats: int
) -> Compared:
    seen = case.interruptions
    queue = RunQueue(int(measured.environment["cores"]), seen.slices or (SLICE,), round(seen.load))
    on_core = phases(measured, case.variant, case.threads).on_core()
    longest = 100 * float(case.times(timed=False).max())
    simulated, queued, updates = [], [], []
    for seed in range(repeats):
        alone = relax(
            problem,
            time=f"{file}(variant={case.variant}, threads={case.threads})",
            processors=case.threads,
            detect="processor",
            tolerance=measured.threshold,
            max_time=longest,
            seed=seed,
        )
        simulated.append(alone.virtual_time)
        updates.append(alone.updates.sum())
        run = simulate_threads(
            problem, on_core, measured.threshold, queue=queue, seed=seed, longest=longest
        )
        queued.append(run.time)
    really = [sum(run.iterations) for run in case.runs if not run.timed]
    return Compared(
        side,
        measured.threshold,
        case.variant,
        case.threads,
        case.times(timed=False),
        np.array(simulated),
        np.array(queued),
        float(np.median(updates) / np.median(really)),
        seen.share,
        seen.load,
    )


def _replay(count: int) -> list[Replayed]:
    """Record runs on the 20 x 20 grid, and play them in the simulation."""
    problem = load_problem("laplace2d:20", rhs="ones-solution")
    done = []
    for number in range(count):
        threads, variant = (2, 3, 4, 6, 8)[number % 5], SOLVERS[number % 2]
        run = run_threads(
            problem, variant, threads, 1e-3, lingering=20, limits=Limits(recorded=1 << 20)
        )
        if run.recording is not None and run.recording.complete:
            done.append(Replayed(variant, threads, replay(problem, run.recording, 1e-3).late_by))
    return done
