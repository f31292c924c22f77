"""A Kineto trace of one process as the profile of a worker whose parameters lie on a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paracosm.errors import InputError
from paracosm.profiling.jobs.check import check_job_profile
from paracosm.profiling.jobs.job_profile import JobProfile
from paracosm.profiling.jobs.kineto.assemble import Timed, assemble
from paracosm.profiling.jobs.kineto.batch import batch_of
from paracosm.profiling.jobs.kineto.gradients import Gradient, gradients_of
from paracosm.profiling.jobs.kineto.parameters import Parameter, named, without_model
from paracosm.profiling.jobs.kineto.pieces import WorkerStep, worker_steps
from paracosm.profiling.jobs.kineto.places import Places, places_of
from paracosm.profiling.jobs.kineto.refusals import (
    refuse_several_processes,
    refuse_without_training,
)
from paracosm.timeline.kineto import read_kineto

__all__ = ["job_profile_of_trace"]


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
