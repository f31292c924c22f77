"""Simulation of a run: the compiled loop, and decisions that it cannot make."""

import heapq
import time
from collections.abc import Callable
from functools import partial
from math import inf, isfinite, nan

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.relaxation.fault_injection import schedule_faults
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.functions import user_functions
from paracosm.relaxation.kernel.halo import BYTES
from paracosm.relaxation.kernel.loop import with_addresses
from paracosm.relaxation.kernel.prepare import prepare
from paracosm.relaxation.problems import LEAST_SQUARED, check_range, norm_of_vector
from paracosm.relaxation.result import Mark, RelaxationResult, Spans, Staleness, Status, What
from paracosm.relaxation.spec import RunSpec
from paracosm.relaxation.spectrum import proves_convergence
from paracosm.relaxation.state import (
    Run,
    allow_any_growth,
    ask_durations,
    ask_rows,
    ask_values,
    bad_time,
    change_pattern,
    compute_residual,
    error_norm,
    grow,
    growth_rate,
    norm,
    refused,
    set_largest,
    true_norm,
)

Progress = Callable[[float, int, Floats], None]
"""Called some ten times a second, and at the end: virtual time, relaxations, and the history's new
rows, of shape (k, 4): virtual time, relaxations, norm of the residual, norm of the error. However
often it is called, it gets all rows, even those that a long history drops later; that of the end is
the result's."""

_SLICE_SECONDS = 0.1
_FIRST_SLICE = 20_000  # relaxations

Ending = tuple[Status, str] | None


def simulate(spec: RunSpec, progress: Progress | None = None) -> RelaxationResult:
    """Play the asynchronous iteration that `spec` describes; Ctrl-C ends it with the results so
    far.

    Raises:
        InputError: a duration that is zero, negative or not a number.
    """
    started = time.perf_counter()
    run = _prepare_run(spec)
    reporter = _Reporter(run, progress)
    try:
        status, reason = _play(run, reporter)
        reporter.report()
    except KeyboardInterrupt:
        status, reason = "interrupted", "interrupted"
    return _result(run, status, reason, time.perf_counter() - started)


def _prepare_run(spec: RunSpec) -> Run:
    functions = user_functions(spec.update, spec.choose, spec.times.function, spec.problem.map)
    arrays = with_addresses(prepare(spec, functions))
    run = Run(spec, functions, arrays, spec.problem.A)
    compute_residual(run)
    if arrays.checkpoint.residual.size:
        arrays.checkpoint.residual[:] = arrays.iterate.residual
    run.initial_residual = norm(run)
    check_range("first residual", arrays.iterate.residual)
    arrays.gauges[k.KEPT] = arrays.gauges[k.SQUARE]
    set_largest(run, float(arrays.gauges[k.SQUARE]))
    config = spec.config
    if config.tolerance is not None:
        run.tolerance = config.tolerance * (run.initial_residual if config.relative else 1.0)
        rules = arrays.rules._replace(limit=float(run.tolerance))
        run.arrays = arrays._replace(rules=rules)
    if config.error_tolerance is not None and spec.problem.solution is not None:
        check_range("first error", arrays.iterate.x - spec.problem.solution)
    run.enter(k.SAMPLE)
    schedule_faults(run)
    for instant, pattern in spec.patterns[1:]:
        run.at(instant, partial(change_pattern, run, pattern))
    return run


class _Reporter:
    """Reports the rows of the history before it drops some, which a full one does."""

    def __init__(self, run: Run, progress: Progress | None) -> None:
        self._run = run
        self._progress = progress
        self._seen = -1.0  # relaxations at the last row that was reported

    def report(self) -> None:
        run, counters = self._run, self._run.arrays.counters
        if self._progress is not None:
            rows = run.arrays.history.rows[: counters[k.SAMPLES]]
            new = rows[rows[:, 1] > self._seen]
            self._seen = rows[-1, 1]
            self._progress(run.virtual_time, int(counters[k.RELAXATIONS]), new)

    def limit(self) -> float:
        """Report if the history is full; return the relaxations at which it may be so again."""
        counters, gauges = self._run.arrays.counters, self._run.arrays.gauges
        rows = self._run.arrays.history.rows
        room = len(rows) - counters[k.SAMPLES]
        if room == 0:
            if rows[-1, 1] > self._seen:
                self.report()
            room = len(rows) // 2
        return float(gauges[k.NEXT_SAMPLE] + (room - 1) * gauges[k.SAMPLE_EVERY])


def _play(run: Run, reporter: _Reporter) -> tuple[Status, str]:
    counters, spec = run.arrays.counters, run.spec
    if norm(run) <= run.tolerance:
        return "converged", "the first iterate is already within the tolerance"
    ask_durations(run)
    slice_size, most, before = _FIRST_SLICE, _FIRST_SLICE, time.perf_counter()
    while True:
        until = min(run.agenda[0].time if run.agenda else inf, spec.max_time)
        unreported = max(reporter.limit(), float(counters[k.RELAXATIONS] + 1))
        limit = min(most, unreported, spec.most_relaxations, 2.0**62)
        answer = run.enter(k.PLAY, 0, until * run.ticks, limit)
        ending: Ending = None
        if answer == k.CALL_ROWS:
            ask_rows(run)
        elif answer == k.CALL_VALUES:
            ask_values(run)
            ask_durations(run)
        elif answer == k.GROW:
            grow(run)
        elif answer == k.PAUSED:
            reporter.limit()
            ending = _next_event(run, until)
        elif answer in (k.BAD_TIME, k.EXHAUSTED):
            raise bad_time(run, answer)
        elif answer == k.TOO_LATE:
            raise InputError(
                "messages that share ports travel for at most 106 days of virtual time: give "
                "shorter durations, or an earlier max_time"
            )
        elif answer in (k.BAD_ROWS, k.RAISED):
            raise refused(run, answer)
        elif answer in (k.DETECTED, k.DIVERGED):
            ending = _judge(run, answer)
        elif counters[k.RELAXATIONS] >= spec.most_relaxations:
            sweeps = counters[k.RELAXATIONS] / run.spec.problem.n
            ending = "stopped", f"stopped after {sweeps:,.6g} sweeps"
        elif _all_stopped(run):
            ending = "stopped", "stopped: all processors have stopped"
        elif counters[k.RELAXATIONS] >= most or counters[k.RELAXATIONS] < limit:
            now = time.perf_counter()
            slice_size = _next_slice(slice_size, now - before)
            before, most = now, int(counters[k.RELAXATIONS]) + slice_size
            reporter.report()
        if ending is not None:
            return ending


def _next_slice(size: int, seconds: float) -> int:
    factor = _SLICE_SECONDS / max(seconds, 1e-3)
    return int(max(1000, size * min(4.0, max(0.25, factor))))


def _all_stopped(run: Run) -> bool:
    key = run.arrays.clock.key
    first = key.size // 2
    stopped = np.isinf(key[first : first + run.spec.processors]).all()
    return bool(stopped) and not any(event.revives for event in run.agenda)


def _next_event(run: Run, until: float) -> Ending:
    """Execute the next event, if there is one that affects a processor."""
    a, spec = run.arrays, run.spec
    if _all_stopped(run):
        return "stopped", "stopped: all processors have stopped"
    run.move_to(until)
    if not run.agenda or run.agenda[0].time > spec.max_time:
        # A checkpoint that was being taken is cut short.
        a.gauges[k.SHIFT] = min(a.gauges[k.SHIFT], spec.max_time * run.ticks - a.gauges[k.NOW])
        return "stopped", f"stopped at virtual time {spec.max_time:g} s"
    heapq.heappop(run.agenda).act()
    answer = run.enter(k.OBSERVE)
    return _judge(run, answer) if answer in (k.DETECTED, k.DIVERGED) else None


def _judge(run: Run, answer: int) -> Ending:
    """Return whether the run has ended, after confirming convergence."""
    rules = run.arrays.rules
    if answer == k.DIVERGED:
        return _judge_growth(run)
    compute_residual(run)
    size = norm(run)
    if size < LEAST_SQUARED:  # whose square may be 0 where the residual is not
        size = norm_of_vector(run.arrays.iterate.residual, rules.infinity)
    if size <= run.tolerance:
        if run.corrupted and not true_norm(run) <= run.tolerance:
            return "stopped", "converged to the solution of a system that a fault has changed"
        return "converged", "the residual is within the tolerance"
    if error_norm(run) <= rules.error_limit:
        return "converged", "the error is within the tolerance"
    if 0 < size < LEAST_SQUARED:
        return "stopped", (
            "stopped: the residual is too small to be squared, and above the tolerance: scale A "
            "and b"
        )
    run.false_detections += 1
    return None


def _judge_growth(run: Run) -> Ending:
    """Return how a run ends whose residual has grown beyond the limit, or left floating point.

    Growth alone is no divergence where convergence is proved: the residual may grow on the way, by
    any factor. What is proved is of the system as given, not of one that a fault has changed.
    """
    proved = not run.corrupted and proves_convergence(run.spec)
    size, square = norm(run), run.arrays.gauges[k.SQUARE]
    if not isfinite(square):
        size = norm_of_vector(run.arrays.iterate.residual, run.arrays.rules.infinity)
        what = f"{size:.3g}, whose square is not finite" if isfinite(size) else "not finite"
        exact = ", although it converges in exact arithmetic" if proved else ""
        return "diverged", f"diverged: the residual is {what}{_growing(run)}{exact}"
    if not proved:
        return "diverged", f"diverged: the residual is {size:.3g}{_growing(run)}"
    if run.spec.config.growth_limit is None:
        allow_any_growth(run)
        return None
    return "stopped", (
        f"stopped: the residual has grown to {size:.3g}, by more than the growth limit of "
        f"{run.spec.config.growth_limit:g}, although the iteration is sure to converge"
    )


def _growing(run: Run) -> str:
    rate = growth_rate(run)
    return f", growing by a factor of {rate:.4g} per sweep" if rate > 1 else ""


def _result(run: Run, status: Status, reason: str, wall_time: float) -> RelaxationResult:
    a, processors = run.arrays, run.spec.processors
    counters, gauges = a.counters, a.gauges
    residual = true_norm(run)
    if a.history.rows[counters[k.SAMPLES] - 1, 1] < counters[k.RELAXATIONS]:
        run.enter(k.SAMPLE)
    history = a.history.rows[: counters[k.SAMPLES]]
    updates = a.flight.updates[:processors].copy()
    # In shared memory those of snapshots are none.
    sent = a.halos.sent if a.rules.distributed else np.zeros_like(a.halos.sent)
    snapshots = int(a.tally.snapshots[0])
    return RelaxationResult(
        status=status,
        reason=reason,
        x=a.iterate.x,
        residual=residual,
        initial_residual=run.initial_residual,
        tolerance=run.tolerance,
        error=error_norm(run),
        virtual_time=run.virtual_time,
        wall_time=wall_time,
        relaxations=int(counters[k.RELAXATIONS]),
        updates=updates,
        times=history[:, 0] / run.ticks,
        sweeps=history[:, 1] / run.spec.problem.n,
        residuals=history[:, 2].copy(),
        errors=history[:, 3].copy(),
        staleness=Staleness(
            mean=float(gauges[k.STALENESS]) / max(int(updates.sum()), 1),
            most=int(counters[k.STALEST]),
            width=1 << a.rules.bin_shift,
            counts=a.tally.staleness.copy(),
        ),
        marks=tuple(_marks(run)),
        checkpoints=int(counters[k.CHECKPOINTS]),
        rollbacks=int(counters[k.ROLLBACKS]),
        faults=run.struck,
        false_detections=run.false_detections,
        first_within=float(gauges[k.REACHED]) / run.ticks if gauges[k.REACHED] >= 0 else nan,
        growth_rate=growth_rate(run) if status == "diverged" else nan,
        messages=int(sent.sum()),
        detection_messages=int(sent[a.halos.kind != k.HALO].sum()),
        bytes_sent=int((sent * np.diff(a.halos.link)).sum()) * BYTES,
        snapshots=snapshots,
        recorded=a.tally.recorded,
        recorded_residual=float(np.sqrt(a.tally.contribution[0])) if snapshots else nan,
        last_update=np.where(updates > 0, a.clock.begun[:processors], 0.0) / run.ticks,
        spans=_spans(run),
        spec=run.spec,
        busy=_busy(run),
        off=_off(run),
    )


def _busy(run: Run) -> Floats:
    """Return for how many seconds each processor has computed."""
    a, p = run.arrays, run.spec.processors
    computed: Floats = a.tally.busy[:p] - np.maximum(a.flight.end[:p] - a.gauges[k.NOW], 0.0)
    return computed / run.ticks


def _off(run: Run) -> Floats:
    """Return for how many seconds each processor was stopped."""
    off, end = np.zeros(run.spec.processors), run.virtual_time
    for processor, begin, until in run.stops:
        off[processor] += max(0.0, min(until, end) - begin)
    return off


def _marks(run: Run) -> list[Mark]:
    a, faults = run.arrays, iter(run.faults)
    names: tuple[What, ...] = ("fault", "rollback", "checkpoint")
    marks = []
    for instant, relaxations, what, residual in a.history.marks[: a.counters[k.MARKS]].tolist():
        words, before, data = next(faults) if what == k.FAULT else ("", nan, False)
        name = names[int(what)]
        marks.append(
            Mark(instant / run.ticks, int(relaxations), name, residual, words, before, data)
        )
    return marks


def _spans(run: Run) -> Spans:
    a, count = run.arrays, run.arrays.counters[k.SPANS]
    begin, copied, computed, total = (a.spans.times[:count] / run.ticks).T
    end = begin + total
    return Spans(a.spans.processor[:count].copy(), begin, begin + copied, begin + computed, end)
