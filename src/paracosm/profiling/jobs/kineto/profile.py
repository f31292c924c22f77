"""A Kineto trace of one process as the profile of a worker whose parameters lie on a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    JobProfile,
    check_job_profile,
    dependencies_of,
    smallest_first,
)
from paracosm.profiling.jobs.kineto.gradients import (
    Gradient,
    Parameter,
    gradients_of,
    named,
    refuse_several_processes,
    refuse_without_training,
    shapes_in,
    without_model,
)
from paracosm.profiling.jobs.kineto.segments import WorkerStep, worker_steps
from paracosm.timeline.kineto import KinetoTrace, read_kineto
from paracosm.timeline.kineto.trace import is_backward


def job_profile_of_trace(
    path: Path,
    *,
    parameters: Sequence[Parameter] = (),
    batch: int | None = None,
    servers: int = 1,
) -> JobProfile:
    """Return what the process would do as the worker of a parameter server that it never had.

    The worker computes what the trace shows, in that order, with the time between two ops as an op
    of its own. Each parameter is pulled at the step's begin and needed by the first op that takes
    it; its gradient is pushed when autograd has it whole, or when the program has clipped or
    unscaled it. What the optimizer does moves to the server: its seconds are shared out among the
    parameters by their bytes, and what follows it in the program waits for all of them.

    Transfers take no time in the profile: they were never made.

    Args:
        path: of the trace; recorded with `ProfilerActivity.CPU`, best with `record_shapes=True`.
        parameters: of the model, in the order of their gradients, as `parameters_of_model` gives
            them: they name the parameters, and tell their bytes where the trace does not.
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
    refuse_several_processes(trace)
    refuse_without_training(trace)
    steps = worker_steps(trace)
    found: list[_Step] = []
    for step in steps.steps:
        gradients = gradients_of(trace, step, steps.threads)
        found.append(_Step(step, gradients, places_of(step, gradients)))
    usual, kept, dropped = _alike(found, path)
    if any(gradient.size < 0 for gradient in usual.gradients) and not parameters:
        raise InputError(
            f"{path}: how large the parameters are is not recorded: record the trace with "
            "record_shapes=True, or name the model"
        )
    own = (
        named(usual.gradients, parameters, str(path))
        if parameters
        else without_model(usual.gradients)
    )
    profile = assemble(
        [Timed(each.step, steps.gap_after(each.step)) for each in kept],
        usual.places,
        own,
        servers=servers,
        batch=batch_of(trace, usual.step, usual.gradients) if batch is None else batch,
        dropped=dropped,
        provenance={
            "source": "kineto",
            "framework": "pytorch",
            "trace": path.name,
            "device": steps.device,
            "steps": [each.step.number for each in kept],
            "transfers": "inserted",
            "updates": "the optimizer's seconds by bytes"
            if any(piece.optimizer for piece in usual.step.pieces)
            else "no optimizer in the trace: they take no time",
            "placed": dict(sorted(Counter(each.how for each in usual.gradients).items())),
            "missing": list(trace.missing),
        },
    )
    return check_job_profile(profile, str(path))


@dataclass(frozen=True)
class _Step:
    """A step, the gradients that it makes, and the pieces that need and make them."""

    step: WorkerStep
    gradients: tuple[Gradient, ...]
    places: Places

    @property
    def has_optimizer(self) -> bool:
        return any(piece.optimizer for piece in self.step.pieces)

    @property
    def looks(self) -> tuple[object, ...]:
        """What must be the same for all steps of a profile."""
        return (
            tuple((piece.name, piece.optimizer) for piece in self.step.pieces),
            tuple((gradient.shape, gradient.dtype) for gradient in self.gradients),
            self.places,
        )


def _alike(found: Sequence[_Step], path: Path) -> tuple[_Step, list[_Step], dict[str, int]]:
    """Return the first of the steps that most are like, all of those, and how many are not."""
    training = [each for each in found if each.gradients]
    if not training:
        raise InputError(f"{path}: none of the {len(found)} steps that are marked has gradients")
    with_optimizer = sum(each.has_optimizer for each in training)
    if 0 < with_optimizer <= len(training) / 2:
        raise InputError(
            f"{path}: {with_optimizer} of {len(training)} steps have the optimizer's: call "
            "profiler.step() once for each step of the optimizer, not for each piece of its batch"
        )
    whole = [each for each in training if each.has_optimizer or not with_optimizer]
    counts = Counter(each.looks for each in whole)
    # Of several that are as frequent, the first: a counter keeps the order.
    looks = max(counts, key=lambda each: counts[each])
    kept = [each for each in whole if each.looks == looks]
    dropped = {
        "no gradients": len(found) - len(training),
        "no step of the optimizer": len(training) - len(whole),
        "other ops than in most steps": len(whole) - len(kept),
    }
    return kept[0], kept, {reason: count for reason, count in dropped.items() if count}


@dataclass(frozen=True, slots=True)
class Places:
    """Indices of the step's pieces, for each gradient."""

    needed_by: tuple[int, ...]  # the first piece that cannot begin without the parameter
    made_by: tuple[int, ...]  # the piece at whose end the gradient is ready


def places_of(step: WorkerStep, gradients: Sequence[Gradient]) -> Places:
    """Return where a step's transfers go.

    An op that launched nothing itself, such as a view, hands its need on to the next piece, and the
    device has a gradient when it has ended all that was launched before.
    """
    needed = [
        next((at for at, piece in enumerate(step.pieces) if piece.returned > each.needed), 0)
        for each in gradients
    ]
    made = [
        max((at for at, piece in enumerate(step.pieces) if piece.called < each.ready), default=0)
        for each in gradients
    ]
    return Places(tuple(needed), tuple(made))


def batch_of(trace: KinetoTrace, step: WorkerStep, gradients: Sequence[Gradient]) -> int | None:
    """Return the first size of what the first layer takes, if a loss has so many rows; else None.

    Of sequences, whose loss has a row for each token, and of losses that were not recorded, the
    shapes do not tell which size is the batch.
    """
    known = [each for each in gradients if each.shape and each.taker >= 0]
    first = min(known, key=lambda each: each.needed, default=None)
    if first is None:
        return None
    taken = _taken_with(trace, first)
    rows = {
        shapes[0][0]
        for row, inputs in trace.inputs.items()
        if step.called <= trace.begin[row] < step.returned
        and "loss" in trace.text(row)
        and not is_backward(trace.text(row))
        and (shapes := list(shapes_in(inputs.shapes)))
    }
    return taken if taken in rows else None


def _taken_with(trace: KinetoTrace, first: Gradient) -> int | None:
    """Return the first size of what the layer takes beside its parameter."""
    lane = trace.lane[first.taker]
    for row in sorted(trace.inputs):
        around = trace.begin[row] <= first.needed and trace.end[row] >= trace.end[first.taker]
        if around and trace.lane[row] == lane and row <= first.taker:
            shapes = list(shapes_in(trace.inputs[row].shapes))
            if first.shape in shapes:
                return next((shape[0] for shape in shapes if shape != first.shape), None)
    return None


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


_HOST = "host"


@dataclass(frozen=True, slots=True)
class Timed:
    """A step, and the seconds until the next begins."""

    step: WorkerStep
    gap: float


def assemble(
    steps: Sequence[Timed],
    places: Places,
    parameters: Sequence[Parameter],
    *,
    servers: int,
    batch: int | None,
    dropped: Mapping[str, int],
    provenance: Mapping[str, Any],
) -> JobProfile:
    """Return the profile of steps that have the same pieces."""
    plan = _plan(steps[0].step, places, parameters)
    sizes = np.array([parameter.size for parameter in parameters], np.int64)
    on = np.zeros(len(sizes), np.int64)
    on[plan.pulled] = smallest_first(sizes[plan.pulled].tolist(), servers)
    ends = [_times(plan, each.step, sizes, on, servers) for each in steps]
    length = np.array([each.length for each in ends])
    begin = np.concatenate([[0.0], np.cumsum(length + [each.gap for each in steps])[:-1]])
    count, work = len(parameters), plan.work
    pushed, pulled = np.arange(count), plan.pulled
    zeros = np.zeros(work, np.int64)
    first, flat = dependencies_of(plan.waits)
    labels = _once(parameter.name for parameter in parameters)
    return JobProfile(
        names=(
            *(f"pull {labels[at]}" for at in pulled),
            *_once(plan.names),
            *(f"push {labels[at]}" for at in pushed),
            *(f"update {labels[at]}" for at in pushed),
        ),
        kinds=(*["Pull"] * count, *plan.kinds, *["Push"] * count, *["Update"] * count),
        resource=np.repeat(
            np.array([DOWNLINK, WORKER, UPLINK, SERVER], np.int8), [count, work, count, count]
        ),
        server=np.concatenate([on[pulled], zeros, on, on]),
        size=np.concatenate([sizes[pulled], zeros, sizes, np.zeros(count, np.int64)]),
        first_dependency=first,
        dependencies=flat,
        begin=np.array([each.begin for each in ends]),
        end=np.array([each.end for each in ends]),
        step_begin=begin,
        step_end=begin + length,
        batch=batch,
        dropped=dropped,
        provenance=provenance,
    )


@dataclass(frozen=True)
class _Plan:
    """What is the same in all steps."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    work: int  # how many ops the worker has
    pulled: Ints  # gradients in the order in which their parameters are needed
    made_by: Ints  # by gradient, the worker's op at whose end it is ready
    resumes: int  # the worker's op that waits for the updates; -1 for none
    waits: list[list[int]]  # by op of the profile, which ops it waits for


@dataclass(frozen=True)
class _Times:
    """When each op of a step begins and ends, and how long the step is; in seconds."""

    begin: Floats
    end: Floats
    length: float


def _plan(step: WorkerStep, places: Places, parameters: Sequence[Parameter]) -> _Plan:
    names: list[str] = []
    kinds: list[str] = []
    op_of: dict[int, int] = {}
    resumes = -1
    for at, piece in enumerate(step.pieces):
        names.append(_HOST)
        kinds.append("Host")
        if piece.optimizer:
            resumes = len(names)
        else:
            op_of[at] = len(names)
            names.append(piece.name)
            kinds.append(piece.name)
    names.append(_HOST)
    kinds.append("Host")
    work, count, kept = len(names), len(parameters), list(op_of)
    needed = np.array([op_of[_at_or_behind(kept, at)] for at in places.needed_by], np.int64)
    made = np.array([op_of[_at_or_before(kept, at)] for at in places.made_by], np.int64)
    pulled = np.argsort(needed, kind="stable")
    waits: list[list[int]] = [[] for _ in range(count + work + 2 * count)]
    for op in range(1, work):
        waits[count + op].append(count + op - 1)
    for number, gradient in enumerate(pulled.tolist()):
        waits[count + int(needed[gradient])].append(number)
    for gradient in range(count):
        waits[count + work + gradient].append(count + int(made[gradient]))
        waits[2 * count + work + gradient].append(count + work + gradient)
        if resumes >= 0:
            waits[count + resumes].append(2 * count + work + gradient)
    return _Plan(tuple(names), tuple(kinds), work, pulled, made, resumes, waits)


def _at_or_behind(kept: Sequence[int], at: int) -> int:
    return next((each for each in kept if each >= at), kept[-1])


def _at_or_before(kept: Sequence[int], at: int) -> int:
    return next((each for each in reversed(kept) if each <= at), kept[0])


def _times(plan: _Plan, step: WorkerStep, sizes: Ints, on: Ints, servers: int) -> _Times:
    """Return the times of a step whose transfers take none."""
    seconds, cut, reached = [], 0.0, step.begin
    for piece in step.pieces:
        seconds.append(piece.begin - reached)
        reached = piece.end
        if piece.optimizer:
            cut += piece.end - piece.begin
        else:
            seconds.append(piece.end - piece.begin)
    seconds.append(step.end - reached)
    update = sizes * (cut / max(int(sizes.sum()), 1))
    ends = np.cumsum(seconds)
    ready = ends[plan.made_by]
    free = np.zeros(servers)
    begun = np.zeros(len(sizes))
    for gradient in np.argsort(ready, kind="stable").tolist():
        begun[gradient] = max(ready[gradient], free[on[gradient]])
        free[on[gradient]] = begun[gradient] + update[gradient]
    begins = ends - seconds
    if plan.resumes >= 0:
        later = max(0.0, float(free.max()) - begins[plan.resumes])
        begins[plan.resumes :] += later
        ends[plan.resumes :] += later
    asked = np.zeros(len(sizes))
    return _Times(
        np.concatenate([asked, begins, ready, begun]),
        np.concatenate([asked, ends, ready, begun + update]),
        float(max(ends[-1], free.max())),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    """Return names with a number behind those that were there before ("host", "host#2", ...)."""
    met: dict[str, int] = {}
    found = []
    for name in names:
        number = met[name] = met.get(name, 0) + 1
        found.append(name if number == 1 else f"{name}#{number}")
    return tuple(found)
