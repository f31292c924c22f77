"""One run of real threads: prepared, started together, timed, and never left running."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError, unknown
from paracosm.relaxation.problems import (
    LEAST_SQUARED,
    Problem,
    check_diagonal,
    check_range,
    norm_of_vector,
)
from paracosm.relaxation.threads.measurement import Recording

VARIANTS = ("race", "safe", "stencil")
CHECK_EVERY = 10  # iterations between local residuals of the stencil variant
_POLL = 0.02  # seconds between two looks at whether the threads are done
_GRACE = 0.2  # seconds for a thread to begin whose start was interrupted


@dataclass(frozen=True)
class Limits:
    """When a run is given up, and how many iterations of a thread are recorded one by one."""

    iterations: int = 50_000_000
    seconds: float = 600.0
    recorded: int = 1 << 18  # later ones still enter the totals


@dataclass(frozen=True)
class ThreadTotals:
    """What a relaxation thread did in all its iterations, recorded one by one or not."""

    iterations: int
    sums: Floats  # seconds and squares of copy, compute, update, whole; shape (2, 4)


@dataclass(frozen=True)
class Run:
    """What one run of real threads did."""

    variant: str
    threads: int  # that relax; race and safe have one more, for the residual
    timed: bool
    status: str  # "converged", "diverged", or "stopped" at a limit
    # seconds from the common start to the detection, or else to the end of the last thread
    time: float
    joined: float  # seconds until all threads had ended
    residual: float  # ||b - Ax|| of the final x, computed afresh
    checks: int  # of the residual thread; 0 for stencil
    totals: tuple[ThreadTotals, ...]
    recording: Recording | None  # None without timers
    x: Floats  # shape (n,)


def run_threads(
    problem: Problem,
    variant: str,
    threads: int,
    threshold: float,
    *,
    timed: bool = True,
    lingering: int = 0,
    check_every: int = CHECK_EVERY,
    limits: Limits | None = None,
) -> Run:
    """Solve `problem` with real threads until the residual's 2-norm is at most `threshold`.

    Args:
        threads: relaxation threads.
        timed: whether to read the clock and record every iteration.
        lingering: checks that the residual thread makes after the detecting one, so that a replay
            that is late can be seen to be late.
        check_every: iterations between local residuals of the stencil variant.
        limits: iterations of a thread, and seconds, after which the run is stopped.

    Raises:
        InputError: an unknown variant, more threads than rows, a zero on the diagonal, the stencil
            variant for a problem that has no 5-point stencil.
        KeyboardInterrupt: after Ctrl-C, when all threads have ended.
    """
    from paracosm.relaxation.threads.atomics import (
        BEGAN,
        CONTROL_WORDS,
        DETECTED,
        STATUS,
        STOP,
        check_platform,
    )
    from paracosm.relaxation.threads.kernels import CONVERGED, DIVERGED

    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    check_platform()
    check_range("first residual", problem.b - problem.A @ problem.x0)
    limits = limits or Limits()
    control = np.zeros(CONTROL_WORDS, np.int64)
    prepare = _prepare_stencil if variant == "stencil" else _prepare_solver
    team = prepare(
        problem, variant, threads, threshold, control, timed, lingering, check_every, limits
    )
    _play(team.jobs, control, STOP, limits.seconds)
    ended = time.monotonic_ns()
    began = int(control[BEGAN])
    converged = control[STATUS] == CONVERGED
    status = {CONVERGED: "converged", DIVERGED: "diverged"}.get(int(control[STATUS]), "stopped")
    x = team.solution()
    joined = 1e-9 * (ended - began)
    with np.errstate(over="ignore", invalid="ignore"):  # of a diverged x
        residual = norm_of_vector(problem.b - problem.A @ x, infinity=False)
    if converged and not residual <= threshold and residual < LEAST_SQUARED:
        status = "stopped"  # the thread that looks at it has found a square of 0
    return Run(
        variant,
        threads,
        timed,
        status,
        1e-9 * float(control[DETECTED] - began) if converged else joined,
        joined,
        residual,
        team.checks(),
        team.totals(),
        team.recording(began) if timed else None,
        x,
    )


def block_pointer(rows: int, threads: int) -> Ints:
    """Return where each thread's block of consecutive rows begins, and the end."""
    if not 1 <= threads <= rows:
        raise InputError(f"threads: give from 1 to {rows}, the rows to share, not {threads}")
    return np.arange(threads + 1, dtype=np.int64) * rows // threads


@dataclass(frozen=True)
class _Team:
    """The threads' work, one function each, and how to read what they left."""

    jobs: list[Callable[[], None]]
    solution: Callable[[], Floats]
    checks: Callable[[], int]
    totals: Callable[[], tuple[ThreadTotals, ...]]
    recording: Callable[[int], Recording]


def _prepare_solver(
    problem: Problem,
    variant: str,
    threads: int,
    threshold: float,
    control: Ints,
    timed: bool,
    lingering: int,
    _every: int,
    limits: Limits,
) -> _Team:
    from paracosm.relaxation.threads.kernels import relax_rows, watch_residual

    A, b = problem.A, problem.b
    diagonal = A.diagonal()
    if not diagonal.all():
        raise InputError(
            f"{problem.name}: zero on the diagonal in row {int(np.argmin(diagonal != 0))}: "
            "Jacobi divides by it"
        )
    check_diagonal(A, problem.name)
    pointer = block_pointer(problem.n, threads)
    system = A.indptr, A.indices, A.data
    x = problem.x0.astype(np.float64, copy=True)
    locked = variant == "safe"
    notes = [_Notes.make(timed, limits.recorded, 4) for _ in range(threads)]
    watch = _Notes.make(timed, limits.recorded, 3)
    norms = np.full(len(watch.stamps), np.nan)
    detecting = np.full(1, -1, np.int64)
    begin = threads + 1

    def relax(thread: int) -> None:
        note = notes[thread]
        note.count = relax_rows(
            int(pointer[thread]), int(pointer[thread + 1]), *system, diagonal, b, x, control,
            begin, locked, timed, limits.iterations, note.stamps, note.sums,
        )  # fmt: skip

    def watching() -> None:
        watch.count = watch_residual(
            threshold, lingering, *system, b, x, control, begin, locked, timed, watch.stamps,
            norms, detecting,
        )  # fmt: skip

    def recording(began: int) -> Recording:
        kept = min(watch.count, len(norms))
        return Recording(
            pointer,
            tuple(note.recorded(began) for note in notes),
            tuple(note.count for note in notes),
            watch.recorded(began),
            norms[:kept].copy(),
            int(detecting[0]),
        )

    jobs: list[Callable[[], None]] = [watching]
    jobs += [partial(relax, thread) for thread in range(threads)]
    return _Team(jobs, lambda: x, lambda: watch.count, lambda: _totals(notes), recording)


def _prepare_stencil(
    problem: Problem,
    _variant: str,
    threads: int,
    threshold: float,
    control: Ints,
    timed: bool,
    _lingering: int,
    every: int,
    limits: Limits,
) -> _Team:
    from paracosm.relaxation.threads.atomics import LINE
    from paracosm.relaxation.threads.kernels import relax_band

    (ny, nx), coefficients = five_point(problem)
    pointer = block_pointer(ny, threads)
    start, b = problem.x0.reshape(ny, nx), problem.b.reshape(ny, nx)
    bands = []
    edges = np.zeros((threads, 2, nx))
    parts = np.zeros(threads * LINE)
    residual = (problem.b - problem.A @ problem.x0).reshape(ny, nx)
    for thread in range(threads):
        rows = slice(int(pointer[thread]), int(pointer[thread + 1]))
        band = np.zeros((2, rows.stop - rows.start + 2, nx + 2))
        band[0, 1:-1, 1:-1] = start[rows]
        edges[thread] = start[rows.start], start[rows.stop - 1]
        parts[thread * LINE] = np.sum(residual[rows] ** 2)
        bands.append(band)
    total = np.array([parts.sum()])
    locks = np.zeros(2 * threads * LINE, np.int64)
    notes = [_Notes.make(timed, limits.recorded, 4) for _ in range(threads)]

    def relax(thread: int) -> None:
        note = notes[thread]
        rows = b[pointer[thread] : pointer[thread + 1]]
        note.count = relax_band(
            thread, bands[thread], rows, coefficients, edges, locks, control, threads, threshold,
            every, total, parts, timed, limits.iterations, note.stamps, note.sums,
        )  # fmt: skip

    def solution() -> Floats:
        newest = [band[note.count % 2, 1:-1, 1:-1] for band, note in zip(bands, notes, strict=True)]
        return np.concatenate(newest).ravel()

    def recording(began: int) -> Recording:
        return Recording(
            pointer * nx,
            tuple(note.recorded(began) for note in notes),
            tuple(note.count for note in notes),
            np.empty((0, 3), np.int64),
            np.empty(0),
            -1,
        )

    jobs: list[Callable[[], None]] = [partial(relax, thread) for thread in range(threads)]
    return _Team(jobs, solution, lambda: 0, lambda: _totals(notes), recording)


def five_point(problem: Problem) -> tuple[tuple[int, int], Floats]:
    """Return a grid problem's shape and coefficients: centre, above, below, left, right."""
    stencil = problem.stencil
    wanted = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
    if stencil is not None and len(stencil.shape) == 2:
        offsets = [tuple(offset) for offset in stencil.offsets.tolist()]
        if set(offsets) == set(wanted):
            ordered = [stencil.coefficients[offsets.index(offset)] for offset in wanted]
            return (stencil.shape[0], stencil.shape[1]), np.array(ordered)
    raise InputError(
        f"{problem.name}: variant stencil needs a 2-D problem with a 5-point stencil, "
        "such as laplace2d:100; use race or safe"
    )


@dataclass
class _Notes:
    stamps: Ints
    sums: Floats
    count: int = 0

    @classmethod
    def make(cls, timed: bool, capacity: int, width: int) -> _Notes:
        # Filled now, so that no page is missing when the thread writes to it.
        stamps = np.full((capacity if timed else 0, width), -1, np.int64)
        return cls(stamps, np.zeros((2, 4)))

    def recorded(self, began: int) -> Ints:
        return self.stamps[: min(self.count, len(self.stamps))] - began


def _totals(notes: list[_Notes]) -> tuple[ThreadTotals, ...]:
    return tuple(ThreadTotals(note.count, note.sums) for note in notes)


def _play(jobs: list[Callable[[], None]], control: Any, stop: int, seconds: float) -> None:
    """Run the `jobs` in threads until all are done; after `seconds`, or on Ctrl-C, stop them."""
    failures: list[BaseException] = []
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # compiled code raises nothing, but compiling it may
            failures.append(error)
            control[stop] = 1
        finally:
            done.put(None)

    crew = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    deadline = time.monotonic() + seconds
    left = len(crew)
    try:
        for thread in crew:
            thread.start()
        # A thread whose join was interrupted counts as ended, so they say themselves that they are.
        while left:
            with contextlib.suppress(queue.Empty):
                done.get(timeout=_POLL)
                left -= 1
            if time.monotonic() > deadline:
                control[stop] = 1
    except BaseException:
        control[stop] = 1
        _wait_for(crew)
        raise
    if failures:
        raise failures[0]


def _wait_for(crew: list[threading.Thread]) -> None:
    grace = time.monotonic() + _GRACE
    while time.monotonic() < grace and any(thread.ident is None for thread in crew):
        time.sleep(_POLL)
    running = {thread.ident for thread in crew} - {None}
    while running & sys._current_frames().keys():
        time.sleep(_POLL)
