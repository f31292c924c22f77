"""The worker's time in each step of a trace, segment after segment, as one thing at a time.

On a host alone, a segment is an outermost op of the training loop's thread or of autograd's. With a
device, it is what one such op launched there, from the begin of the first kernel to the end of the
last; where streams overlap, the time counts for what began first. So segments and what lies between
them add up to the step.

The optimizer's range is a segment like an op, whatever is in it; a reentrant checkpoint is none,
but what it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.timeline.kineto import (
    DeviceSpans,
    KinetoTrace,
    Step,
    Window,
    backward_threads,
    device_spans,
    window_of,
)

Ints = npt.NDArray[np.int64]

OPTIMIZER = "Optimizer.step"
"""How the ranges begin that PyTorch puts around the steps of its optimizers."""

CHECKPOINT = "CheckpointFunction"
"""In the names of ops that are whole parts of a model, forward or recomputed and backward."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the worker's computing."""

    name: str
    # begin, end: seconds from the trace's origin
    begin: float
    end: float
    # called, returned: when the host began and ended the op, on the same clock
    called: float
    returned: float
    optimizer: bool


@dataclass(frozen=True, slots=True)
class WorkerStep:
    """A step of the worker, in seconds from the trace's origin."""

    number: int
    # begin, end: of the worker's time: with a device, from where it ended what the step
    # before launched to where it ends what this one does, if that is later than the host's
    begin: float
    end: float
    # called, returned: of the loop's step on the host
    called: float
    returned: float
    segments: tuple[Segment, ...]  # by begin; none overlap


@dataclass(frozen=True)
class WorkerSteps:
    """The steps of a trace."""

    steps: tuple[WorkerStep, ...]
    threads: tuple[int, ...]  # lanes of the training loop and of autograd
    device: str  # "cuda" or "cpu": what the segments ran on

    def gap_after(self, step: WorkerStep) -> float:
        """Return the seconds between a step and the next; 0 behind the last one."""
        later = (each.begin for each in self.steps if each.number == step.number + 1)
        return max(0.0, next(later, step.end) - step.end)


def worker_steps(trace: KinetoTrace) -> WorkerSteps:
    """Return the steps that the profiler marked, or the whole trace if it shows a single one."""
    window = window_of(trace)
    threads = tuple(sorted({window.thread, *backward_threads(trace)} - {-1}))
    outermost = {lane: _outermost(trace, lane) for lane in threads}
    marked = window.steps or (_whole(trace, window),)
    spans = device_spans(trace, Window(0.0, float(trace.end.max()), window.thread, ()))
    if not len(spans):
        rows = np.sort(np.concatenate([np.zeros(0, np.int64), *outermost.values()]))
        return WorkerSteps(tuple(_on_host(trace, step, rows) for step in marked), threads, "cpu")
    callers = _callers(trace, spans, outermost)
    return WorkerSteps(
        tuple(_on_device(trace, step, spans, callers) for step in marked), threads, "cuda"
    )


def _whole(trace: KinetoTrace, window: Window) -> Step:
    """Return a trace without marks as one step."""
    names = [trace.text(row) for row in trace.of("annotation")]
    if sum(name.startswith(OPTIMIZER) for name in names) != 1:
        raise InputError(
            f"{trace.path}: where its steps begin is not marked (no ProfilerStep): call "
            "profiler.step() at the end of each"
        )
    return Step(0, window.begin, window.end)


def _outermost(trace: KinetoTrace, lane: int) -> Ints:
    """Return the rows of a thread's ops and ranges of optimizers that are in no other of them."""
    optimizer = [code for code, name in enumerate(trace.names) if name.startswith(OPTIMIZER)]
    around = [code for code, name in enumerate(trace.names) if CHECKPOINT in name]
    ops, ranges = trace.of("op"), trace.of("annotation")
    ops = ops[~np.isin(trace.name[ops], around)]
    rows = np.sort(np.concatenate([ops, ranges[np.isin(trace.name[ranges], optimizer)]]))
    rows = rows[trace.lane[rows] == lane]
    reached = np.maximum.accumulate(trace.end[rows])
    first = np.ones(len(rows), bool)
    first[1:] = trace.begin[rows[1:]] >= reached[:-1]
    return np.asarray(rows[first], np.int64)


def _on_host(trace: KinetoTrace, step: Step, rows: Ints) -> WorkerStep:
    first, last = np.searchsorted(trace.begin[rows], [step.begin, step.end])
    segments = [_segment(trace, row, trace.begin[row], trace.end[row]) for row in rows[first:last]]
    return WorkerStep(
        step.number,
        step.begin,
        step.end,
        step.begin,
        step.end,
        _one_after_another(segments, step.begin),
    )


def _callers(trace: KinetoTrace, spans: DeviceSpans, outermost: dict[int, Ints]) -> Ints:
    """Return, for each span of the device, the row of the outermost op that launched it, or -1."""
    found = np.full(len(spans), -1, np.int64)
    for lane, rows in outermost.items():
        here = np.flatnonzero(spans.thread == lane)
        at = np.searchsorted(trace.begin[rows], spans.launched[here], side="right") - 1
        within = (at >= 0) & (spans.launched[here] < trace.end[rows[np.maximum(at, 0)]])
        found[here[within]] = rows[at[within]]
    return found


def _on_device(trace: KinetoTrace, step: Step, spans: DeviceSpans, callers: Ints) -> WorkerStep:
    before = spans.end[spans.launched < step.begin].max(initial=-np.inf)
    begin = float(max(step.begin, before))
    mine = np.flatnonzero((spans.launched >= step.begin) & (spans.launched < step.end))
    end = float(max(step.end, begin, spans.end[mine].max(initial=-np.inf)))
    segments: list[Segment] = []
    last = -1
    for number in mine[np.argsort(spans.begin[mine], kind="stable")].tolist():
        caller = int(callers[number])
        since, until = spans.begin[number], spans.end[number]
        if caller >= 0 and caller == last:
            segments[-1] = replace(segments[-1], end=max(segments[-1].end, float(until)))
        elif caller >= 0:
            segments.append(_segment(trace, caller, since, until))
        else:
            row, call = int(spans.row[number]), int(spans.call[number])
            alone = _segment(trace, row, since, until)
            segments.append(
                replace(alone, called=float(trace.begin[call]), returned=float(trace.end[call]))
            )
        last = caller
    return WorkerStep(
        step.number, begin, end, step.begin, step.end, _one_after_another(segments, begin)
    )


def _segment(trace: KinetoTrace, row: int, begin: float, end: float) -> Segment:
    name = trace.text(row)
    return Segment(
        name=name.partition("(")[0].removeprefix("autograd::engine::evaluate_function: "),
        begin=float(begin),
        end=float(end),
        called=float(trace.begin[row]),
        returned=float(trace.end[row]),
        optimizer=name.startswith(OPTIMIZER),
    )


def _one_after_another(segments: Sequence[Segment], begin: float) -> tuple[Segment, ...]:
    """Return segments, which stand by begin, of which each begins when those before have ended."""
    reached = begin
    found = []
    for segment in segments:
        since = max(segment.begin, reached)
        reached = max(segment.end, since)
        found.append(replace(segment, begin=since, end=reached))
    return tuple(found)
