"""The gradients of a step: size, parameter, and when each is complete."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError, require
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.timeline.kineto.device import DeviceSpans, device_spans
from paracosm.timeline.kineto.trace import (
    KinetoTrace,
    Step,
    Window,
    backward_threads,
    bytes_of,
    is_backward,
    window_of,
)

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""What autograd calls the op that hands a gradient to its parameter."""

_COMMUNICATION = re.compile(
    r"(nccl|rccl|gloo|mpi|ucc|xccl)(:|DevKernel|Kernel)|c10d::|_c10d_functional::"
    r"|record_param_comms|rpc_(sync|async|remote)|DistributedDataParallel"
)


def refuse_without_training(trace: KinetoTrace) -> None:
    why = "record one process without torch.distributed, on one device"
    if trace.world_size is not None and trace.world_size > 1:
        raise InputError(
            f"{trace.path}: rank {trace.rank} of a job of {trace.world_size} ranks, which "
            f"communicates already: {why}"
        )
    collectives = [name for name in trace.names if _COMMUNICATION.match(name)]
    collectives += [trace.text(row) for row in sorted(trace.collectives)]
    kernels = dict.fromkeys(trace.text(row) for row in trace.of("kernel").tolist())
    collectives += [name for name in kernels if trace.kind_of_kernel(name)]
    if collectives:
        raise InputError(
            f"{trace.path}: {collectives[0][:60]}: the job communicates already: {why}"
        )
    used = np.unique(trace.lane[trace.of("kernel")])
    devices = sorted({trace.lanes[lane].owner for lane in used})
    if len(devices) > 1:
        raise InputError(f"{trace.path}: it computes on devices {', '.join(devices)}: {why}")
    if ACCUMULATE not in trace.names:
        raise InputError(
            f"{trace.path}: no gradients ({ACCUMULATE}): a profile needs steps of training, "
            "recorded with ProfilerActivity.CPU"
        )


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient of a step; times are the host's, in seconds from the trace's origin."""

    shape: tuple[int, ...] | None  # None where the trace does not tell
    dtype: str  # "float", "c10::Half", ...; "" where the trace does not tell
    size: int  # bytes; -1 where the trace does not tell
    ready: float  # when it was whole, and nothing changed it any more
    needed: float  # when the first op that takes the parameter began
    consumer_name: str
    consumer: int  # row of it; -1 where it was not found
    # That op was found, as `Consumers.of` has it; if it was not, the parameter is needed from
    # the step's begin on
    how: str


def gradients_of(
    trace: KinetoTrace, step: WorkerStep, threads: Sequence[int]
) -> tuple[Gradient, ...]:
    """Return the gradients of a step in the order of completion. With several backward passes over
    parts of one batch, they are ready after the last pass, and needed by the first."""
    ops = trace.of("op")
    within = (trace.begin[ops] >= step.called) & (trace.begin[ops] < step.returned)
    rows = np.asarray(ops[within & np.isin(trace.lane[ops], threads)], np.int64)
    accumulated = [row for row in rows.tolist() if trace.text(row) == ACCUMULATE]
    if not accumulated:
        return ()
    consumers = Consumers(trace, rows)
    gradients = [_gradient(trace, row, consumers) for row in accumulated]
    gradients = _of_parameters(trace, step, rows, gradients)
    first = _merged(_passes(trace, rows, gradients), trace, step)
    return _as_pushed(trace, step, rows, first)


def shapes_in(value: Any) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of tensors in an argument: of itself, or of a list of them."""
    if not isinstance(value, list | tuple):
        return
    if value and all(type(size) is int for size in value):
        yield tuple(value)
    for item in value:
        yield from shapes_in(item)


def _gradient(trace: KinetoTrace, row: int, consumers: Consumers) -> Gradient:
    shape, dtype, size = None, "", -1
    inputs = trace.inputs.get(row)
    if inputs is not None and inputs.shapes and inputs.types and inputs.types[0]:
        sizes = inputs.shapes[0]
        if isinstance(sizes, list) and all(type(size) is int for size in sizes):
            shape, dtype = tuple(sizes), inputs.types[0]
            item = bytes_of(dtype)
            size = math.prod(shape) * item if item > 0 else -1
    consumer, how = consumers.of(row)
    return Gradient(
        shape,
        dtype,
        size,
        ready=float(trace.end[row]),
        needed=float(trace.begin[consumer]) if consumer >= 0 else -math.inf,
        consumer_name=trace.text(consumer) if consumer >= 0 else "",
        consumer=consumer,
        how=how,
    )


def _of_parameters(
    trace: KinetoTrace, step: WorkerStep, rows: Ints, gradients: Sequence[Gradient]
) -> list[Gradient]:
    """Return gradients without those of activations at which a recomputation begins."""
    updated = {
        shape
        for segment in step.segments
        if segment.optimizer
        for row in rows[
            (trace.begin[rows] >= segment.called) & (trace.begin[rows] < segment.returned)
        ]
        if int(row) in trace.inputs
        for shape in shapes_in(trace.inputs[int(row)].shapes)
    }
    return [
        gradient
        for gradient in gradients
        if gradient.how == "sequence number"
        or not (updated and gradient.shape)
        or gradient.shape in updated
    ]


def _passes(trace: KinetoTrace, rows: Ints, gradients: Sequence[Gradient]) -> list[list[Gradient]]:
    """Return gradients by backward pass: between two, the loop calls ops that have gradients."""
    reached = -math.inf
    calls = []
    for row in rows.tolist():
        if trace.begin[row] < reached:
            continue
        reached = float(trace.end[row])
        if trace.sequence[row] >= 0 and not is_backward(trace.text(row)):
            calls.append(float(trace.begin[row]))
    passes: dict[int, list[Gradient]] = {}
    for gradient in gradients:
        passes.setdefault(int(np.searchsorted(calls, gradient.ready)), []).append(gradient)
    return list(passes.values())


def _merged(
    passes: Sequence[Sequence[Gradient]], trace: KinetoTrace, step: WorkerStep
) -> list[Gradient]:
    first, last = passes[0], passes[-1]
    shapes = [gradient.shape for gradient in first]
    for pass_ in passes[1:]:
        if [gradient.shape for gradient in pass_] != shapes:
            raise InputError(
                f"{trace.path}: step {step.number} has {len(passes)} backward passes, of "
                f"{len(first)} and {len(pass_)} gradients that differ: a profile needs steps with "
                "one loss"
            )
    return [replace(begun, ready=ended.ready) for begun, ended in zip(first, last, strict=True)]


def _as_pushed(
    trace: KinetoTrace, step: WorkerStep, rows: Ints, found: Sequence[Gradient]
) -> tuple[Gradient, ...]:
    """Return gradients as ready after their last change in place (clipping, unscaling)."""
    optimizer = min(
        (segment.called for segment in step.segments if segment.optimizer), default=None
    )
    if optimizer is None:
        return tuple(found)
    whole = max(gradient.ready for gradient in found)
    if optimizer < whole:
        raise InputError(
            f"{trace.path}: step {step.number}: the optimizer runs before the last gradient is "
            "there: call profiler.step() at the end of the loop's body, once for each backward pass"
        )
    changed: dict[tuple[int, ...], float] = {}
    for row in rows[(trace.begin[rows] >= whole) & (trace.begin[rows] < optimizer)].tolist():
        if trace.text(row).endswith("_") and row in trace.inputs:
            for shape in shapes_in(trace.inputs[row].shapes):
                changed[shape] = float(trace.end[row])
    return tuple(
        replace(gradient, ready=changed.get(gradient.shape, gradient.ready))
        if gradient.shape
        else gradient
        for gradient in found
    )


class Consumers:
    """Finds the ops of the forward pass that take the parameters.

    Autograd accumulates a gradient (`AccumulateGrad`) as soon as the last op that contributes to it
    has run, before any other (`torch/csrc/autograd/functions/accumulate_grad.cpp`: its sequence
    number is the highest possible). So that op precedes it. Its gradient belongs to the last op of
    the forward pass with its sequence number, which takes the parameter. Backward passes run from
    the last use to the first: for parameters with several uses, this is the first.
    """

    def __init__(self, trace: KinetoTrace, rows: Ints) -> None:
        self._trace = trace
        self._contributing: list[int] = []
        self._forward: dict[int, int] = {}
        self._calls: list[int] = []
        for row in rows.tolist():
            sequence = int(trace.sequence[row])
            if not is_backward(trace.text(row)):
                self._calls.append(row)
                if sequence >= 0:
                    self._forward[sequence] = row
            elif sequence >= 0:
                self._contributing.append(row)
        self._begins = trace.begin[self._contributing]
        self._backward_from = float(self._begins.min(initial=np.inf))
        self._calls = [row for row in self._calls if trace.begin[row] < self._backward_from]
        self._ran_first: dict[int, int] = {}

    def of(self, row: int) -> tuple[int, str]:
        """Return the row of the op that takes the parameter of an `AccumulateGrad`, and how it
        was found: by "sequence number", "as recomputed" (the backward pass repeated the forward
        pass: by name and shapes), or -1, "not found"."""
        at = int(np.searchsorted(self._begins, self._trace.begin[row])) - 1
        if at < 0:
            return -1, "not found"
        consumer = self._forward.get(int(self._trace.sequence[self._contributing[at]]), -1)
        if consumer < 0:
            return -1, "not found"
        if self._trace.begin[consumer] < self._backward_from:
            return consumer, "sequence number"
        first = self._original_call(consumer)
        return (first, "as recomputed") if first >= 0 else (-1, "not found")

    def _original_call(self, consumer: int) -> int:
        """Return the row of the call that a backward call repeats (last to first), or -1."""
        if consumer not in self._ran_first:
            wanted = self._looks(consumer)
            taken = set(self._ran_first.values())
            alike = (
                row
                for row in reversed(self._calls)
                if row not in taken and self._looks(row) == wanted
            )
            self._ran_first[consumer] = next(alike, -1)
        return self._ran_first[consumer]

    def _looks(self, row: int) -> tuple[Any, ...]:
        inputs = self._trace.inputs.get(row)
        return int(self._trace.name[row]), inputs and inputs.shapes


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that has a gradient."""

    name: str  # "layer1.0.conv1.weight"; without a model, that of the op that takes it
    shape: tuple[int, ...]  # sizes
    size: int  # bytes


def parameters_of_model(options: CaptureOptions) -> tuple[Parameter, ...]:
    """Return a model's parameters in the order in which a backward pass computes their gradients.

    The order is found by a step on fake tensors, which computes nothing. Frozen or unused
    parameters have no gradient and are left out; a tied one has its first name.

    Raises:
        InputError: the model cannot be made or does not run.
    """
    require("torch", "torch", "the parameters of a model")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from paracosm.graphs.capture.step import make_step, try_out

    order: list[Parameter] = []

    def note(name: str, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        order.append(Parameter(name, tuple(tensor.shape), size))

    with FakeTensorMode(allow_non_fake_inputs=True):
        step = make_step(options, options.device)
        for name, parameter in step.workload.module.named_parameters():
            if parameter.requires_grad:
                hook = partial(note, name)
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        try_out(step, options)
    return tuple(order)


def named(
    gradients: Sequence[Gradient], parameters: Sequence[Parameter], where: str
) -> tuple[Parameter, ...]:
    """Return the parameter of each gradient: the next of its shape, or without shapes, the next."""
    if len(gradients) != len(parameters):
        raise InputError(
            f"{where}: a step has {len(gradients)} gradients, but the model has "
            f"{len(parameters)}: name the model that was traced"
        )
    left = list(parameters)
    with_names = []
    for at, gradient in enumerate(gradients):
        fits = (parameter for parameter in left if gradient.shape in (None, parameter.shape))
        parameter = next(fits, None)
        if parameter is None:
            raise InputError(
                f"{where}: gradient {at} of a step has the shape {_written(gradient.shape)}, but "
                f"the model has {left[0].name} of {_written(left[0].shape)}: name the model that "
                "was traced, with the shape of an example and the number of classes"
            )
        left.remove(parameter)
        size = parameter.size if gradient.size < 0 else gradient.size
        with_names.append(Parameter(parameter.name, parameter.shape, size))
    return tuple(with_names)


def without_model(gradients: Sequence[Gradient]) -> tuple[Parameter, ...]:
    """Return the parameter of each gradient, with the name of the op that takes it."""
    return tuple(
        Parameter(
            f"{gradient.consumer_name.removeprefix('aten::') or 'parameter'} "
            f"{_written(gradient.shape)}",
            gradient.shape or (),
            gradient.size,
        )
        for gradient in gradients
    )


def _written(shape: tuple[int, ...] | None) -> str:
    return "x".join(str(size) for size in shape or ()) or "scalar"


OPTIMIZER = "Optimizer.step"
"""How the ranges begin that PyTorch puts around the steps of its optimizers."""

CHECKPOINT = "CheckpointFunction"
"""In the names of ops that are whole parts of a model, forward or recomputed and backward."""


@dataclass(frozen=True, slots=True)
class Segment:
    """An interval of the worker's computing."""

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
    steps: tuple[WorkerStep, ...]
    threads: tuple[int, ...]  # lanes of the training loop and of autograd
    device: str  # "cuda" or "cpu": what the segments ran on

    def gap_after(self, step: WorkerStep) -> float:
        later = (
            later_step.begin for later_step in self.steps if later_step.number == step.number + 1
        )
        return max(0.0, next(later, step.end) - step.end)


def worker_steps(trace: KinetoTrace) -> WorkerSteps:
    """Return the steps that the profiler marked, or the whole trace if it shows a single one.

    On a host alone, a segment is an outermost op of the training loop's thread or of autograd's.
    With a device, it is what one such op launched there, from the begin of the first kernel to the
    end of the last; where streams overlap, the time belongs to what began first. The optimizer's
    range is one segment; a reentrant checkpoint is replaced by the ops that it runs.
    """
    window = window_of(trace)
    threads = tuple(sorted({window.thread, *backward_threads(trace)} - {-1}))
    outermost = {lane: _outermost(trace, lane) for lane in threads}
    marked = window.steps if window.steps and not window.on_device else (_whole(trace, window),)
    spans = device_spans(trace, Window(0.0, float(trace.end.max()), window.thread, ()))
    if not len(spans):
        rows = np.sort(np.concatenate([np.zeros(0, np.int64), *outermost.values()]))
        return WorkerSteps(tuple(_on_host(trace, step, rows) for step in marked), threads, "cpu")
    callers = _callers(trace, spans, outermost)
    return WorkerSteps(
        tuple(_on_device(trace, step, spans, callers) for step in marked), threads, "cuda"
    )


def _whole(trace: KinetoTrace, window: Window) -> Step:
    names = [trace.text(row) for row in trace.of("annotation")]
    if window.on_device or sum(name.startswith(OPTIMIZER) for name in names) != 1:
        raise InputError(
            f"{trace.path}: where its steps begin is not marked (no ProfilerStep): call "
            "profiler.step() at the end of each"
        )
    return Step(0, window.begin, window.end)


def _outermost(trace: KinetoTrace, lane: int) -> Ints:
    """Return the rows of a thread's ops and optimizer ranges that are not nested in others."""
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
    whole = _one_after_another(segments, step.begin)
    return WorkerStep(step.number, step.begin, step.end, step.begin, step.end, whole)


def _callers(trace: KinetoTrace, spans: DeviceSpans, outermost: dict[int, Ints]) -> Ints:
    """Return, for each span of the device, the row of the outermost op that launched it, or -1."""
    callers = np.full(len(spans), -1, np.int64)
    for lane, rows in outermost.items():
        here = np.flatnonzero(spans.thread == lane)
        at = np.searchsorted(trace.begin[rows], spans.launched[here], side="right") - 1
        within = (at >= 0) & (spans.launched[here] < trace.end[rows[np.maximum(at, 0)]])
        callers[here[within]] = rows[at[within]]
    return callers


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
            alone, call = _segment(trace, int(spans.row[number]), since, until), spans.call[number]
            called, returned = float(trace.begin[call]), float(trace.end[call])
            segments.append(replace(alone, called=called, returned=returned))
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
    """Return segments sorted by begin, each moved to begin when those before have ended."""
    reached = begin
    in_order = []
    for segment in segments:
        since = max(segment.begin, reached)
        reached = max(segment.end, since)
        in_order.append(replace(segment, begin=since, end=reached))
    return tuple(in_order)
