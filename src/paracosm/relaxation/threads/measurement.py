"""Measurements of real threads: durations of phases, and whole runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from paracosm.arrays import Floats, Ints
from paracosm.data_files import read_json
from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.validation import validated

Stamps = Ints
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
    """The durations of one thread, over all runs with timers of its case."""

    count: int  # iterations made
    mean: tuple[float, ...]  # seconds: copy, compute, update (or copy, check), whole
    sd: tuple[float, ...]  # likewise
    # nanoseconds, one column a phase: all iterations, or as many as are kept
    samples: Ints


@dataclass(frozen=True, eq=False)
class Case:
    """What was measured of one variant with one number of threads."""

    variant: str
    threads: int  # relaxation threads. Race and safe have one more, which checks the residual
    runs: tuple[RunTimes, ...]  # all of them, with and without timers
    workers: tuple[ThreadTimes, ...]  # the relaxation threads
    residual: ThreadTimes | None  # the residual thread; None for stencil
    interruptions: "Interruptions"  # what was seen of threads losing their cores

    def times(self, timed: bool) -> Floats:
        """Return the seconds to convergence of the runs with, or without, timers."""
        return np.array([run.time for run in self.runs if run.timed == timed])

    def pooled(self) -> tuple[list[float], list[float]]:
        """Return means and standard deviations of copy, compute, update and the whole iteration.

        In seconds, over all relaxation threads and iterations.
        """
        weights = np.array([worker.count for worker in self.workers], np.float64)
        means = np.array([worker.mean for worker in self.workers])
        squares = np.array([worker.sd for worker in self.workers]) ** 2 + means**2
        mean = np.average(means, axis=0, weights=weights)
        variance = np.average(squares, axis=0, weights=weights) - mean**2
        return mean.tolist(), np.sqrt(np.maximum(variance, 0.0)).tolist()


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
        """Return what was measured of a variant with so many threads; refuse others by name."""
        for case in self.cases:
            if (case.variant, case.threads) == (variant, threads):
                return case
        measured = ", ".join(f"{case.variant} with {case.threads}" for case in self.cases)
        raise InputError(f"no measurement of {variant} with {threads} threads; there is {measured}")

    def save(self, path: str | Path) -> None:
        """Write the measurement to one JSON file; see `docs/measuring-threads.md`."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "problem": dict(self.problem),
            "tolerance": self.tolerance,
            "relative": self.relative,
            "threshold": self.threshold,
            "seed": self.seed,
            "clock_overhead": self.clock_overhead,
            "environment": dict(self.environment),
            "cases": [_case_out(case) for case in self.cases],
        }
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")


@dataclass(frozen=True, eq=False)
class Phases:
    """Durations in seconds, aligned by iteration: a row is what one iteration really took.

    `workers` holds copy, compute, update of each relaxation thread, shape (samples, 3) each;
    `residual` copy and check of the residual thread, shape (samples, 2), empty without one.
    """

    workers: tuple[Floats, ...]
    residual: Floats

    @property
    def pooled(self) -> Floats:
        """Copy, compute, update of all relaxation threads, shape (samples, 3)."""
        return np.concatenate(self.workers)

    @property
    def copy(self) -> Floats:
        return self.pooled[:, 0]

    @property
    def compute(self) -> Floats:
        return self.pooled[:, 1]

    @property
    def update(self) -> Floats:
        return self.pooled[:, 2]

    def on_core(self) -> "Phases":
        """Return the iterations less than `LOST` above the median: those that kept their core."""

        def kept(rows: Floats) -> Floats:
            total = rows.sum(axis=1)
            return rows[total < np.median(total) + LOST] if len(rows) else rows

        return Phases(tuple(kept(rows) for rows in self.workers), kept(self.residual))


def phases(
    measurement: Measurement, variant: str, threads: int, *, corrected: bool = True
) -> Phases:
    """Return the measured phases; `corrected` by the time of one reading of the clock in each."""
    case = measurement.case(variant, threads)
    off = measurement.clock_overhead if corrected else 0.0

    def seconds(samples: Ints) -> Floats:
        return np.asarray(np.maximum(1e-9 * samples - off, _LEAST))

    residual = np.empty((0, 2)) if case.residual is None else seconds(case.residual.samples)
    return Phases(tuple(seconds(worker.samples) for worker in case.workers), residual)


_FORMAT, _VERSION = "paracosm measured threads", 1
_PHASES = ("copy", "compute", "update")
_CHECK = ("copy", "check")


def load_measurement(path: str | Path) -> Measurement:
    """Read a measurement from a file that `Measurement.save` wrote."""
    if not Path(path).exists():
        raise InputError(
            f'no measurement at "{path}": paracosm relax measure --out {path} makes one'
        )
    content = read_json(path, "measurement")
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(f"{path}: not a measurement that paracosm relax measure wrote")
    if content.get("version") != _VERSION:
        raise InputError(
            f"{path}: version {content.get('version')} of the format; this is for {_VERSION}"
        )
    file = validated(_File, content, str(path))
    try:
        return Measurement(
            file.problem,
            file.tolerance,
            file.relative,
            file.threshold,
            file.seed,
            file.clock_overhead,
            file.environment,
            tuple(_case_in(case) for case in file.cases),
        )
    except InputError as error:
        raise InputError(f"{path}: damaged: {error}") from None


Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[float, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Run(_Model):
    timed: bool
    status: str
    time: Number
    joined: Number
    residual: float = Field(allow_inf_nan=True)  # of a run that diverged
    iterations: list[Count]
    checks: Count


class _Thread(_Model):
    iterations: Count
    mean: dict[str, Number]
    sd: dict[str, Number]
    nanoseconds: dict[str, list[Count]]


class _Interruptions(_Model):
    slices: list[Number]
    share: float = Field(gt=0, le=1)
    load: Number


class _Case(_Model):
    variant: Literal["race", "safe", "stencil"]
    threads: int = Field(ge=1)
    runs: list[_Run]
    workers: list[_Thread]
    residual: _Thread | None
    interruptions: _Interruptions


class _File(_Model):
    format: str
    version: int
    problem: dict[str, Any]
    tolerance: Number
    relative: bool
    threshold: Number
    seed: Count
    clock_overhead: Number
    environment: dict[str, Any]
    cases: list[_Case]


def _case_out(case: Case) -> dict[str, Any]:
    return {
        "variant": case.variant,
        "threads": case.threads,
        "runs": [dict(vars(run)) for run in case.runs],
        "workers": [_thread_out(worker, _PHASES) for worker in case.workers],
        "residual": None if case.residual is None else _thread_out(case.residual, _CHECK),
        "interruptions": {
            "slices": [float(f"{length:.6g}") for length in case.interruptions.slices],
            "share": case.interruptions.share,
            "load": case.interruptions.load,
        },
    }


def _case_in(case: _Case) -> Case:
    name = f"{case.variant} with {counted(case.threads)}"
    if len(case.workers) != case.threads:
        raise InputError(f"{name} has {counted(len(case.workers))}")
    seen = case.interruptions
    return Case(
        case.variant,
        case.threads,
        tuple(RunTimes(**dict(run) | {"iterations": tuple(run.iterations)}) for run in case.runs),
        tuple(_thread_in(worker, _PHASES, name) for worker in case.workers),
        None if case.residual is None else _thread_in(case.residual, _CHECK, name),
        Interruptions(tuple(seen.slices), seen.share, seen.load),
    )


def _thread_out(thread: ThreadTimes, phases: tuple[str, ...]) -> dict[str, Any]:
    return {
        "iterations": thread.count,
        "mean": dict(zip((*phases, "whole"), thread.mean, strict=True)),
        "sd": dict(zip((*phases, "whole"), thread.sd, strict=True)),
        "nanoseconds": {
            phase: thread.samples[:, column].tolist() for column, phase in enumerate(phases)
        },
    }


def _thread_in(thread: _Thread, phases: tuple[str, ...], name: str) -> ThreadTimes:
    for what, keys in (("nanoseconds", phases), ("mean", all_ := (*phases, "whole")), ("sd", all_)):
        if getattr(thread, what).keys() != set(keys):
            raise InputError(f"{name}: {what} must be of {', '.join(keys)}")
    columns = [thread.nanoseconds[phase] for phase in phases]
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"{name}: {', '.join(phases)} must have equally many nanoseconds")
    if not 0 < len(columns[0]) <= thread.iterations:
        raise InputError(
            f"{name}: nanoseconds of {len(columns[0])} iterations of {thread.iterations}"
        )
    return ThreadTimes(
        thread.iterations,
        tuple(thread.mean[phase] for phase in (*phases, "whole")),
        tuple(thread.sd[phase] for phase in (*phases, "whole")),
        np.ascontiguousarray(np.array(columns, np.int64).T),
    )


@dataclass(frozen=True, eq=False)
class Recording:
    """What every thread of a run did when, in nanoseconds since the common start."""

    pointer: Ints  # thread k relaxes the rows from `pointer[k]` to `pointer[k + 1]`
    # a row an iteration: start (the end before), copied, computed, updated
    workers: tuple[Stamps, ...]
    iterations: tuple[int, ...]  # of each relaxation thread, recorded or not
    checks: Stamps  # of the residual thread: start, copied, checked; empty for stencil
    norms: Floats  # that each check found
    detecting: int  # index of the check that detected convergence, or -1

    @property
    def complete(self) -> bool:
        """Whether every iteration was recorded: only then it can be replayed."""
        recorded = [len(stamps) for stamps in self.workers]
        return recorded == list(self.iterations) and self.detecting < len(self.checks)


LOST = 0.5e-3  # seconds; schedulers take a core away for longer, unless somebody hurries
_KEPT = 500  # slices, evenly over their ranks


@dataclass(frozen=True)
class Interruptions:
    """How threads shared the cores."""

    # how long threads ran from one interruption to the next, seconds, ascending
    slices: tuple[float, ...]
    share: float  # of the run, the part that the threads spent on cores, averaged over threads
    load: float  # foreign threads that would explain that share; see `foreign_load`


def find_interruptions(recordings: Sequence[Recording], cores: int) -> Interruptions:
    """Return what recordings of equal numbers of threads show of interruptions on `cores`."""
    slices, shares = [], []
    threads = 1
    for recording in recordings:
        stamps = [(rows[:, 0], rows[:, -1]) for rows in (*recording.workers, recording.checks)]
        stamps = [(start, end) for start, end in stamps if len(start)]
        threads = len(stamps)
        for start, end in stamps:
            stretches, share = _stretches(start, end)
            slices.append(stretches)
            shares.append(share)
    share = float(np.mean(shares)) if shares else 1.0
    gaps = np.sort(np.concatenate(slices)) if slices else np.empty(0)
    if len(gaps) > _KEPT:
        gaps = gaps[np.linspace(0, len(gaps) - 1, _KEPT).round().astype(int)]
    return Interruptions(tuple(gaps.tolist()), share, foreign_load(share, threads, cores))


def foreign_load(share: float, threads: int, cores: int) -> float:
    """Return how many foreign threads leave each of `threads` a `share` of a core."""
    # Sharing `cores` fairly, each thread gets min(1, cores / (threads + load)) of one.
    if share >= 1:
        return 0.0
    return max(0.0, cores / share - threads)


def _stretches(start: Ints, end: Ints) -> tuple[Floats, float]:
    seconds = 1e-9 * (end - start)
    usual = float(np.median(seconds))
    lost = np.flatnonzero(seconds > usual + LOST)
    if not lost.size:
        return np.empty(0), 1.0
    away = float(np.sum(seconds[lost] - usual))
    whole = 1e-9 * float(end[-1] - start[0])
    # Before the first and after the last interruption a slice is not seen whole.
    between = 1e-9 * (start[lost[1:]] - end[lost[:-1]]) + usual
    return np.asarray(between, np.float64), 1.0 - away / whole


def counted(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"
