"""The graph or the real training step of given options; PyTorch is imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paracosm.errors import InputError, require
from paracosm.graphs.capture.options import CaptureOptions

if TYPE_CHECKING:
    from paracosm.graphs.capture.step import TrainingStep
    from paracosm.graphs.graph import Graph


def capture(options: CaptureOptions) -> Graph:
    """Return the graph of one training step, without computing or allocating anything.

    It has the ops that eager PyTorch really dispatches, in their order. The step before it, which
    makes the optimizer's state, is left out.

    Raises:
        InputError: the model cannot be made or run so; with its own error.
    """
    require("torch", "torch", "capturing a model")
    from paracosm.graphs.capture.record import capture_fake

    return capture_fake(options)


def training_step(
    options: CaptureOptions, device: str | None = None, seed: int = 0
) -> TrainingStep:
    """Return the same step on real tensors, to be run as often as wanted.

    Nothing has run yet: the first run also makes the optimizer's state. `seed` is that of
    parameters and inputs; `device` stands in place of that of the options.

    Raises:
        InputError: the model cannot be made, or is shared between ranks.
    """
    torch = require("torch", "torch", "capturing a model")
    from paracosm.graphs.capture.step import make_step

    if options.ranks > 1:
        raise InputError(f"a real step runs one rank, not {options.ranks}")
    torch.manual_seed(seed % 2**63)
    return make_step(options, device or options.device)
