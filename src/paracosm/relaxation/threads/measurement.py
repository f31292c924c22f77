"""What was measured: how long each phase of real threads' iterations took, and whole runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.relaxation.threads.interruptions import Interruptions
from paracosm.relaxation.threads.recording import Recording

__all__ = ["Case", "Measurement", "Phases", "RunTimes", "ThreadTimes", "phases"]

Array = NDArray[np.float64]
_LEAST = 1e-9  # seconds, of a phase from which the clock's own time is taken


@dataclass(frozen=True)
class RunTimes:
    """One run: seconds to the detection of convergence and to the end of the last thread."""

    timed: bool
    status: str
    time: float
    joined: float
    residual: float
    iterations: tuple[int, ...]
    checks: int


@dataclass(frozen=True, eq=False)
class ThreadTimes:
    """The durations of one thread, over all runs with timers of its case.

    Args:
        count: iterations made.
        mean, sd: of copy, compute, update and the whole iteration, over all of them, in seconds
            (of the residual thread: copy, check, whole).
        samples: a row an iteration, one column a phase, in whole nanoseconds: all iterations, or
            as many as are kept, shape (kept, 3) (of the residual thread 2).
    """

    count: int
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    samples: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Case:
    """What was measured of one variant with one number of threads.

    Args:
        threads: relaxation threads. Race and safe have one more, which checks the residual.
        runs: all of them, with and without timers.
        workers: the relaxation threads.
        residual: the residual thread; None for stencil.
        interruptions: what was seen of threads losing their cores.
        recording: the first run with timers, stamp by stamp, where it was asked for.
    """

    variant: str
    threads: int
    runs: tuple[RunTimes, ...]
    workers: tuple[ThreadTimes, ...]
    residual: ThreadTimes | None
    interruptions: Interruptions
    recording: Recording | None = None

    def times(self, timed: bool) -> Array:
        """Return the seconds to convergence of the runs with, or without, timers."""
        return np.array([run.time for run in self.runs if run.timed == timed])


@dataclass(frozen=True, eq=False)
class Measurement:
    """All that `measure` found; `save` writes it, `load_measurement` reads it.

    `problem` names it and its sizes; `threshold` is the residual 2-norm that every run had to
    reach; `clock_overhead` is what one reading of the clock takes, in seconds. `interrupted`: by
    Ctrl-C, so that cases or repeats are missing.
    """

    problem: Mapping[str, Any]
    tolerance: float
    relative: bool
    threshold: float
    seed: int
    clock_overhead: float
    environment: Mapping[str, Any]
    cases: tuple[Case, ...]
    interrupted: bool = False

    def case(self, variant: str, threads: int) -> Case:
        """Return what was measured of a variant with so many relaxation threads.

        Raises:
            InputError: that was not measured; the message says what was.
        """
        for case in self.cases:
            if (case.variant, case.threads) == (variant, threads):
                return case
        measured = ", ".join(f"{case.variant} with {case.threads}" for case in self.cases)
        raise InputError(f"no measurement of {variant} with {threads} threads; there is {measured}")

    def save(self, path: str | Path) -> None:
        """Write the measurement to one JSON file; see `docs/measuring-threads.md`."""
        from paracosm.relaxation.threads.measured_file import save_measurement

        save_measurement(self, path)


@dataclass(frozen=True, eq=False)
class Phases:
    """Durations in seconds, aligned by iteration: a row is what one iteration really took.

    `workers` holds copy, compute, update of each relaxation thread, shape (samples, 3) each;
    `residual` copy and check of the residual thread, shape (samples, 2), empty without one.
    """

    workers: tuple[Array, ...]
    residual: Array

    @property
    def pooled(self) -> Array:
        """Copy, compute, update of all relaxation threads, shape (samples, 3)."""
        return np.concatenate(self.workers)

    @property
    def copy(self) -> Array:
        """The copy times of all relaxation threads, shape (samples,)."""
        return np.concatenate([rows[:, 0] for rows in self.workers])

    @property
    def compute(self) -> Array:
        """The compute times of all relaxation threads, shape (samples,)."""
        return np.concatenate([rows[:, 1] for rows in self.workers])

    @property
    def update(self) -> Array:
        """The update times of all relaxation threads, shape (samples,)."""
        return np.concatenate([rows[:, 2] for rows in self.workers])

    def on_core(self) -> Phases:
        """Return the iterations that did not lose their core: what the run queue works with.

        An iteration counts as interrupted when it took `interruptions.LOST` longer than the median.
        """
        from paracosm.relaxation.threads.interruptions import LOST

        def kept(rows: Array) -> Array:
            total = rows.sum(axis=1)
            return rows[total < np.median(total) + LOST] if len(rows) else rows

        return Phases(tuple(kept(rows) for rows in self.workers), kept(self.residual))


def phases(
    measurement: Measurement, variant: str, threads: int, *, corrected: bool = True
) -> Phases:
    """Return the measured phases of a variant with so many relaxation threads.

    Args:
        corrected: take from every phase what reading the clock once takes, which each contains.

    Raises:
        InputError: that was not measured.
    """
    case = measurement.case(variant, threads)
    off = measurement.clock_overhead if corrected else 0.0

    def seconds(samples: NDArray[np.int64]) -> Array:
        return np.asarray(np.maximum(1e-9 * samples - off, _LEAST))

    return Phases(
        tuple(seconds(worker.samples) for worker in case.workers),
        np.empty((0, 2)) if case.residual is None else seconds(case.residual.samples),
    )
