"""How many examples a step has, where the shapes show it."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.profiling.jobs.kineto.gradients import Gradient, shapes_in
from paracosm.profiling.jobs.kineto.pieces import WorkerStep
from paracosm.timeline.kineto import KinetoTrace
from paracosm.timeline.kineto.trace import is_backward

__all__ = ["batch_of"]


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
