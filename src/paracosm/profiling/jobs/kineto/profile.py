"""A Kineto trace of one process as the profile of a worker with a parameter server."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    JobProfile,
    ProfiledOp,
    check_job_profile,
    job_profile_of,
    smallest_first,
)
from paracosm.profiling.jobs.kineto.gradients import (
    Gradient,
    Parameter,
    WorkerStep,
    gradients_of,
    named,
    refuse_without_training,
    shapes_in,
    without_model,
    worker_steps,
)
from paracosm.timeline.kineto.faults import check_device, whole_steps
from paracosm.timeline.kineto.host_communication import communication_among_ops
from paracosm.timeline.kineto.read import read_kineto
from paracosm.timeline.kineto.trace import KinetoTrace, is_backward


def job_profile_of_trace(
    path: Path, *, parameters: Sequence[Parameter] = (), batch: int | None = None, servers: int = 1
) -> JobProfile:
    """Return what the process would do as the worker of a parameter server that it never had.

    The worker computes what the trace shows, in that order, with the time between two ops as an op
    of its own. Each parameter is pulled at the step's begin and needed by the first op that takes
    it; its gradient is pushed when autograd has completed it, or the program has clipped or
    unscaled it. The optimizer's work moves to the server: its seconds are divided among the
    parameters by their bytes, and what follows it in the program waits for all of them. Transfers
    take no time in the profile: there were none.

    Args:
        path: of the trace; recorded with `ProfilerActivity.CPU`, best with `record_shapes=True`.
        parameters: of the model, in the order of their gradients, from `parameters_of_model`; they
            supply names, and bytes where the trace lacks them.
        batch: examples of a step; taken from the shapes if they show it.
        servers: how many; each parameter goes to the one that has the fewest bytes so far, in the
            order of their use (Li et al. 2020, section 5).

    Raises:
        InputError: the trace cannot be read, is of several processes or devices, has no gradients,
            steps that cannot be told apart, or neither shapes nor a model; the model is another.
    """
    if servers < 1:
        raise InputError(f"servers: {servers}, but at least 1 is needed")
    trace = read_kineto(path, inputs=True)
    refuse_without_training(trace)
    check_device(trace)
    steps = worker_steps(trace)
    whole, faults = whole_steps(trace)
    numbers = {step.number for step in whole}
    read: list[_Step] = []
    for step in steps.steps:
        if numbers and step.number not in numbers:
            continue
        gradients = gradients_of(trace, step, steps.threads)
        read.append(_Step(step, gradients, placement_of(step, gradients)))
    usual, kept, dropped = _alike(read, path)
    if any(gradient.size < 0 for gradient in usual.gradients) and not parameters:
        raise InputError(
            f"{path}: how large the parameters are is not recorded: record the trace with "
            "record_shapes=True, or name the model"
        )
    own = without_model(usual.gradients)
    if parameters:
        own = named(usual.gradients, parameters, str(path))
    plan = _plan(usual.step, usual.placement, own, servers)
    begins, ends, lengths = zip(*(_times(plan, step.step, servers) for step in kept), strict=True)
    length = np.array(lengths)
    gaps = [steps.gap_after(step.step) for step in kept]
    begin = np.concatenate([[0.0], np.cumsum(length + gaps)[:-1]])
    profile = job_profile_of(
        plan.ops,
        np.array(begins),
        np.array(ends),
        begin,
        begin + length,
        batch=batch_of(trace, usual.step, usual.gradients) if batch is None else batch,
        dropped=dropped | Counter(faults[number] for number in sorted(faults.keys() - numbers)),
        provenance={
            "source": "kineto",
            "framework": "pytorch",
            "trace": path.name,
            "device": steps.device,
            "steps": [step.step.number for step in kept],
            "transfers": "inserted",
            "updates": "the optimizer's seconds by bytes"
            if usual.has_optimizer
            else "no optimizer in the trace: they take no time",
            "placed": dict(sorted(Counter(gradient.how for gradient in usual.gradients).items())),
            "missing": list(trace.missing),
            "notes": [
                *trace.notes,
                *communication_among_ops(trace),
                *(f"step {step}: {faults[step]}" for step in sorted(numbers & faults.keys())),
            ],
        },
    )
    return check_job_profile(profile, str(path))


@dataclass(frozen=True)
class _Step:
    step: WorkerStep
    gradients: tuple[Gradient, ...]
    placement: "Placement"

    @property
    def has_optimizer(self) -> bool:
        return any(segment.optimizer for segment in self.step.segments)

    @property
    def looks(self) -> tuple[object, ...]:
        """The properties that all steps of a profile must share."""
        return (
            tuple((segment.name, segment.optimizer) for segment in self.step.segments),
            tuple((gradient.shape, gradient.dtype) for gradient in self.gradients),
            self.placement,
        )


def _alike(steps: Sequence[_Step], path: Path) -> tuple[_Step, list[_Step], dict[str, int]]:
    """Return the first of the most frequent kind of steps, all of those, and the others' number."""
    training = [step for step in steps if step.gradients]
    if not training:
        raise InputError(f"{path}: none of the {len(steps)} steps that are marked has gradients")
    with_optimizer = sum(step.has_optimizer for step in training)
    if 0 < with_optimizer <= len(training) / 2:
        raise InputError(
            f"{path}: {with_optimizer} of {len(training)} steps have the optimizer's: call "
            "profiler.step() once for each step of the optimizer, not for each piece of its batch"
        )
    whole = [step for step in training if step.has_optimizer or not with_optimizer]
    counts = Counter(step.looks for step in whole)
    # Of several that are as frequent, the first: a counter keeps the order.
    looks = max(counts, key=lambda each: counts[each])
    kept = [step for step in whole if step.looks == looks]
    dropped = {
        "no gradients": len(steps) - len(training),
        "no step of the optimizer": len(training) - len(whole),
        "other ops than in most steps": len(whole) - len(kept),
    }
    return kept[0], kept, {reason: count for reason, count in dropped.items() if count}


@dataclass(frozen=True, slots=True)
class Placement:
    """Indices of the step's segments, for each gradient."""

    needed_by: tuple[int, ...]  # the first segment that cannot begin without the parameter
    made_by: tuple[int, ...]  # the segment at whose end the gradient is ready


def placement_of(step: WorkerStep, gradients: Sequence[Gradient]) -> Placement:
    """Return where a step's transfers go. An op that launched nothing itself, such as a view,
    passes its need on to the next segment; a device's gradient is ready after all before it."""
    segments = list(enumerate(step.segments))
    needed = [
        next((at for at, segment in segments if segment.returned > gradient.needed), 0)
        for gradient in gradients
    ]
    made = [
        max((at for at, segment in segments if segment.called < gradient.ready), default=0)
        for gradient in gradients
    ]
    return Placement(tuple(needed), tuple(made))


def batch_of(trace: KinetoTrace, step: WorkerStep, gradients: Sequence[Gradient]) -> int | None:
    """Return the first size of the first layer's input, if a loss has so many rows, else None. For
    sequences, whose loss has a row per token, shapes do not determine the batch."""
    known = [gradient for gradient in gradients if gradient.shape and gradient.consumer >= 0]
    first = min(known, key=lambda each: each.needed, default=None)
    if first is None:
        return None
    taken = _size_beside_parameter(trace, first)
    rows = {
        shapes[0][0]
        for row, inputs in trace.inputs.items()
        if step.called <= trace.begin[row] < step.returned
        and "loss" in trace.text(row)
        and not is_backward(trace.text(row))
        and (shapes := list(shapes_in(inputs.shapes)))
    }
    return taken if taken in rows else None


def _size_beside_parameter(trace: KinetoTrace, first: Gradient) -> int | None:
    """Return the first size of the layer's input other than its parameter."""
    lane = trace.lane[first.consumer]
    for row in sorted(trace.inputs):
        around = trace.begin[row] <= first.needed and trace.end[row] >= trace.end[first.consumer]
        if around and trace.lane[row] == lane and row <= first.consumer:
            shapes = list(shapes_in(trace.inputs[row].shapes))
            if first.shape in shapes:
                return next((shape[0] for shape in shapes if shape != first.shape), None)
    return None


@dataclass(frozen=True)
class _Plan:
    ops: list[ProfiledOp]
    sizes: Ints  # by gradient, bytes
    server: Ints  # by gradient
    made_by: Ints  # by gradient, the worker's op at whose end it is ready
    resumes: int  # the worker's op that waits for the updates; -1 for none


def _plan(
    step: WorkerStep, placement: Placement, parameters: Sequence[Parameter], servers: int
) -> _Plan:
    """Return the ops of a step, in this order: the pulls in the order of first use; the worker's,
    each waiting for the one before (the time between two segments is an op of kind `Host`); the
    pushes in the order in which gradients are ready; the updates. The optimizer's segments are
    removed from the worker's time, and what follows moves up."""
    work: list[tuple[str, str]] = []  # names and kinds of the worker's ops
    op_of: dict[int, int] = {}
    resumes = -1
    for at, segment in enumerate(step.segments):
        work.append(("host", "Host"))
        if segment.optimizer:
            resumes = len(work)
        else:
            op_of[at] = len(work)
            work.append((segment.name, segment.name))
    work.append(("host", "Host"))
    count, segments = len(parameters), list(op_of)
    needed = [
        op_of[next((segment for segment in segments if segment >= at), segments[-1])]
        for at in placement.needed_by
    ]
    made = [
        op_of[next((segment for segment in reversed(segments) if segment <= at), segments[0])]
        for at in placement.made_by
    ]
    pulled = np.argsort(needed, kind="stable")
    sizes = np.array([parameter.size for parameter in parameters], np.int64)
    server = np.zeros(count, np.int64)
    server[pulled] = smallest_first(sizes[pulled].tolist(), servers)
    first_push = count + len(work)
    waits = [[count + op - 1] if op else [] for op in range(len(work))]
    for number, gradient in enumerate(pulled.tolist()):
        waits[needed[gradient]].append(number)
    if resumes >= 0:
        waits[resumes] += range(first_push + count, first_push + 2 * count)
    labels = _made_unique(parameter.name for parameter in parameters)
    ops = [
        ProfiledOp(f"pull {labels[at]}", "Pull", DOWNLINK, int(server[at]), int(sizes[at]))
        for at in pulled
    ]
    for name, (_, kind), before in zip(
        _made_unique(name for name, _ in work), work, waits, strict=True
    ):
        ops.append(ProfiledOp(name, kind, WORKER, waits=before))
    for at, label in enumerate(labels):
        on, size, before = int(server[at]), int(sizes[at]), [count + made[at]]
        ops.append(ProfiledOp(f"push {label}", "Push", UPLINK, on, size, before))
    for at, label in enumerate(labels):
        on, before = int(server[at]), [first_push + at]
        ops.append(ProfiledOp(f"update {label}", "Update", SERVER, on, waits=before))
    return _Plan(ops, sizes, server, np.array(made, np.int64), resumes)


def _times(plan: _Plan, step: WorkerStep, servers: int) -> tuple[Floats, Floats, float]:
    """Return begins and ends of a step's ops, whose transfers take no time, and its length."""
    seconds, cut, reached = [], 0.0, step.begin
    for segment in step.segments:
        seconds.append(segment.begin - reached)
        reached = segment.end
        if segment.optimizer:
            cut += segment.end - segment.begin
        else:
            seconds.append(segment.end - segment.begin)
    seconds.append(step.end - reached)
    update = plan.sizes * (cut / max(int(plan.sizes.sum()), 1))
    ends = np.cumsum(seconds)
    ready = ends[plan.made_by]
    free = np.zeros(servers)
    begun = np.zeros(len(update))
    for gradient in np.argsort(ready, kind="stable").tolist():
        begun[gradient] = max(ready[gradient], free[plan.server[gradient]])
        free[plan.server[gradient]] = begun[gradient] + update[gradient]
    begins = ends - seconds
    if plan.resumes >= 0:
        later = max(0.0, float(free.max()) - begins[plan.resumes])
        begins[plan.resumes :] += later
        ends[plan.resumes :] += later
    requested = np.zeros(len(update))
    return (
        np.concatenate([requested, begins, ready, begun]),
        np.concatenate([requested, ends, ready, begun + update]),
        float(max(ends[-1], free.max())),
    )


def _made_unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return names with a number appended to repeated ones ("host", "host#2", ...)."""
    met: dict[str, int] = {}
    unique = []
    for name in names:
        number = met[name] = met.get(name, 0) + 1
        unique.append(name if number == 1 else f"{name}#{number}")
    return tuple(unique)
