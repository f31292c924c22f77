"""The profile out of the worker's pieces and its parameters.

Ops of a step, in this order: the pulls in the order of their first use; the worker's, of which each
waits for the one before (the time between two pieces is an op of the kind `Host`); the pushes in
the order in which gradients are ready; the updates. The optimizer's pieces are cut out of the
worker's time and what follows moves up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.profiling.jobs.dependencies import dependencies_of
from paracosm.profiling.jobs.job_profile import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.kineto.parameters import Parameter
from paracosm.profiling.jobs.kineto.pieces import WorkerStep
from paracosm.profiling.jobs.kineto.places import Places
from paracosm.profiling.jobs.smallest_first import smallest_first

__all__ = ["Timed", "assemble"]

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
    """Return the profile of steps that have the same pieces.

    Args:
        steps: in order.
        places: of the transfers, by gradient.
        parameters: by gradient, as `places` has them.
        servers: how many.
        batch, dropped, provenance: as `JobProfile` has them.
    """
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
    """What is the same in all steps.

    Attributes:
        names, kinds: of the worker's ops.
        work: how many ops the worker has.
        pulled: gradients in the order in which their parameters are needed.
        made_by: by gradient, the worker's op at whose end it is ready.
        resumes: the worker's op that waits for the updates; -1 for none.
        waits: by op of the profile, which ops it waits for.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    work: int
    pulled: Ints
    made_by: Ints
    resumes: int
    waits: list[list[int]]


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
