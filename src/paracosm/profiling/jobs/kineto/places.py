"""Where the transfers go: before which piece of the worker, and behind which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paracosm.profiling.jobs.kineto.gradients import Gradient
from paracosm.profiling.jobs.kineto.pieces import WorkerStep

__all__ = ["Places", "places_of"]


@dataclass(frozen=True, slots=True)
class Places:
    """Indices of the step's pieces, for each gradient.

    Attributes:
        needed_by: the first piece that cannot begin without the parameter.
        made_by: the piece at whose end the gradient is ready.
    """

    needed_by: tuple[int, ...]
    made_by: tuple[int, ...]


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
