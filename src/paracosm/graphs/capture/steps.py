"""The two things that options can be turned into; PyTorch is imported when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paracosm.graphs.capture.options import CaptureOptions

if TYPE_CHECKING:
    from paracosm.graphs.capture.step import TrainingStep
    from paracosm.graphs.graph import Graph

__all__ = ["capture", "training_step"]


def capture(options: CaptureOptions) -> Graph:
    """Return the graph of one training step, without computing or allocating anything.

    It has the ops that eager PyTorch really dispatches, in their order. The step before it, which
    makes the optimizer's state, is not in it.

    Raises:
        InputError: the model cannot be made or run so; with its own error.
    """
    _need_torch()
    from paracosm.graphs.capture.fake import capture_fake

    return capture_fake(options)


def training_step(
    options: CaptureOptions, device: str | None = None, seed: int = 0
) -> TrainingStep:
    """Return the same step on real tensors, to be run as often as wanted.

    Nothing has run yet: the first run also makes the optimizer's state. PyTorch's own random
    numbers are seeded with `seed`.

    Args:
        options: as for the graph.
        device: instead of that of the options.
        seed: of parameters and inputs.

    Raises:
        InputError: the model cannot be made, or is shared between ranks.
    """
    _need_torch()
    from paracosm.graphs.capture.step import real_step

    return real_step(options, device or options.device, seed)


def _need_torch() -> None:
    from paracosm.errors import require

    require("torch", "torch", "capturing a model")
