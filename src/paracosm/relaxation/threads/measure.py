"""Measure real parallel runs on this machine: phases of iterations, and whole runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError, unknown
from paracosm.machine import processor_name, usable_cores
from paracosm.relaxation.threads.measurement import (
    Case,
    Measurement,
    RunTimes,
    ThreadTimes,
    counted,
    find_interruptions,
)
from paracosm.relaxation.threads.run import (
    VARIANTS,
    Limits,
    Run,
    block_pointer,
    five_point,
    run_threads,
)

if TYPE_CHECKING:
    from paracosm.relaxation.problems import Problem


Progress = Callable[[int, int, str], None]
"""(runs done, runs in all, what comes next)."""

_KEPT = 10_000  # iterations of a case whose durations are kept one by one


def measure(
    problem: Problem,
    variants: Sequence[str] = VARIANTS,
    threads: Sequence[int] = (1, 2, 4),
    *,
    tolerance: float = 1e-6,
    relative: bool = False,
    repeats: int = 3,
    seed: int = 0,
    kept: int = _KEPT,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Solve `problem` with real threads, every variant with every number of threads, and time it.

    Every case runs `repeats` times with timers and as often without, after one short run that
    compiles it. The runs of a round come in an order drawn from `seed`, so that a machine that
    changes its speed does not favour one of them.

    Args:
        variants: of "race", "safe", "stencil".
        threads: numbers of relaxation threads; race and safe have one more, for the residual.
        tolerance: residual 2-norm to reach.
        relative: whether `tolerance` is relative to the norm of the first residual.
        kept: durations of how many iterations to keep for every case.
        limits: when a run is given up.
        progress: called before every run, and at the end.

    Raises:
        InputError: an unknown variant, a number of threads that the rows cannot be shared among,
            a tolerance that is not positive, a stencil variant without a stencil.
        KeyboardInterrupt: after Ctrl-C, when all threads have ended, if no case has run with and
            without timers yet; otherwise those that have are returned.
    """
    limits = limits or Limits()
    _check(problem, variants, threads, tolerance, repeats)
    threshold = residual_threshold(problem, tolerance, relative)
    places = [(variant, count) for variant in dict.fromkeys(variants) for count in threads]
    plan = [(place, timed) for place in places for timed in (True, False)]
    total = repeats * len(plan)
    rng = np.random.default_rng(seed)
    gathered = {place: _Gathered() for place in places}
    short = Limits(iterations=1, seconds=limits.seconds, recorded=1)
    done = 0
    order = [(turn, k) for turn in range(repeats) for k in rng.permutation(len(plan)).tolist()]
    interrupted = False
    try:
        for turn, index in order:
            (variant, count), timed = plan[index]
            if progress:
                progress(done, total, f"{variant}, {counted(count)}")
            if turn == 0:
                run_threads(problem, variant, count, threshold, timed=timed, limits=short)
            run = run_threads(problem, variant, count, threshold, timed=timed, limits=limits)
            gathered[variant, count].add(run)
            done += 1
    except KeyboardInterrupt:
        interrupted = True
        gathered = {place: case for place, case in gathered.items() if case.complete}
        if not gathered:
            raise
    if progress and not interrupted:
        progress(done, total, "done")
    environment = _environment()
    return Measurement(
        {
            "name": problem.name,
            "unknowns": problem.n,
            "nonzeros": int(problem.A.nnz),
            "rhs": problem.rhs,
            "start": problem.start,
        },
        tolerance,
        relative,
        threshold,
        seed,
        clock_overhead(),
        environment,
        tuple(
            case.result(variant, count, kept, int(environment["cores"]), rng)
            for (variant, count), case in gathered.items()
        ),
        interrupted,
    )


def residual_threshold(problem: Problem, tolerance: float, relative: bool = False) -> float:
    """Return the residual 2-norm that a run has to reach."""
    if not relative:
        return tolerance
    return tolerance * float(np.linalg.norm(problem.b - problem.A @ problem.x0))


def clock_overhead() -> float:
    """Return what one reading of the clock takes, in seconds: the median of many batches."""
    from paracosm.relaxation.threads.kernels import read_clock

    batch = 1000
    read_clock(batch)
    return float(np.median([1e-9 * read_clock(batch) / batch for _ in range(101)]))


class _Gathered:
    def __init__(self) -> None:
        self._timed: list[Run] = []
        self._runs: list[RunTimes] = []

    @property
    def complete(self) -> bool:
        return 0 < len(self._timed) < len(self._runs)

    def add(self, run: Run) -> None:
        iterations = tuple(thread.iterations for thread in run.totals)
        self._runs.append(
            RunTimes(
                run.timed, run.status, run.time, run.joined, run.residual, iterations, run.checks
            )
        )
        if run.timed:
            self._timed.append(run)

    def result(
        self, variant: str, threads: int, kept: int, cores: int, rng: np.random.Generator
    ) -> Case:
        recordings = [run.recording for run in self._timed if run.recording is not None]
        made = sum(sum(run.iterations) for run in recordings)
        part = min(1.0, kept / max(made, 1))
        workers = []
        for thread in range(threads):
            stamps = [np.diff(recording.workers[thread], axis=1) for recording in recordings]
            sums = np.sum([run.totals[thread].sums for run in self._timed], axis=0)
            count = sum(run.totals[thread].iterations for run in self._timed)
            workers.append(_thread_times(np.concatenate(stamps), count, sums, part, rng))
        residual = None
        if variant != "stencil":
            checks = np.concatenate([np.diff(recording.checks, axis=1) for recording in recordings])
            seconds = 1e-9 * np.column_stack([checks, checks.sum(axis=1)])
            sums = np.stack([seconds.sum(axis=0), (seconds**2).sum(axis=0)])
            part = min(1.0, kept / max(len(checks), 1))
            residual = _thread_times(checks, len(checks), sums, part, rng)
        return Case(
            variant,
            threads,
            tuple(self._runs),
            tuple(workers),
            residual,
            find_interruptions(recordings, cores),
        )


def _thread_times(
    durations: Ints, count: int, sums: Floats, part: float, rng: np.random.Generator
) -> ThreadTimes:
    mean = sums[0] / max(count, 1)
    variance = np.maximum(sums[1] / max(count, 1) - mean**2, 0.0)
    kept = thinned(durations, max(1, round(part * len(durations))), rng)
    return ThreadTimes(count, tuple(mean.tolist()), tuple(np.sqrt(variance).tolist()), kept)


def thinned(durations: Ints, kept: int, rng: np.random.Generator) -> Ints:
    """Return `kept` rows of `durations` that stand for all, in their order.

    Of each of `kept` groups of equally many iterations, by how long they took, one at random: rare
    long ones keep their weight far better than by chance, and the phases of one iteration stay
    together.
    """
    count = len(durations)
    if kept >= count:
        return durations
    by_length = np.argsort(durations.sum(axis=1), kind="stable")
    begins = np.arange(kept + 1) * count // kept
    chosen = begins[:-1] + (rng.random(kept) * np.diff(begins)).astype(np.int64)
    return durations[np.sort(by_length[chosen])]


def _check(
    problem: Problem,
    variants: Sequence[str],
    threads: Sequence[int],
    tolerance: float,
    repeats: int,
) -> None:
    if not variants or not threads:
        raise InputError("measure at least one variant with at least one number of threads")
    for variant in variants:
        if variant not in VARIANTS:
            raise unknown("variant", variant, VARIANTS)
        for count in threads:
            block_pointer(five_point(problem)[0][0] if variant == "stencil" else problem.n, count)
    if len(set(threads)) < len(threads):
        raise InputError(f"threads: {', '.join(map(str, threads))} names a number twice")
    if not 0 < tolerance < np.inf:
        raise InputError(f"tolerance: give a residual norm above 0, not {tolerance}")
    if not 1 <= repeats <= 10_000:
        raise InputError(f"repeats: give 1 to 10,000, not {repeats:,}")


def _environment() -> dict[str, Any]:
    """Return what timings depend on. No host name, no user name, no path."""
    return {
        "processor": processor_name(),
        "cores": len(usable_cores()),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numba": version("numba"),
        "llvmlite": version("llvmlite"),
        "numpy": version("numpy"),
        "clock": "CLOCK_MONOTONIC",
    }
