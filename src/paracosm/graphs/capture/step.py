"""One training step: its only definition, for real tensors and for fake ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from paracosm.errors import InputError
from paracosm.factory import is_reference, one_line
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.models import Workload, built_in, parse_optimizer
from paracosm.models.build import build_workload

__all__ = ["TrainingStep", "load_workload", "make_step", "real_step", "resolved"]


RATE = 1e-4  # of learning: it changes parameters but little


def _nobody(phase: str) -> None:
    """Hear that a phase begins."""


class TrainingStep:
    """Forward, backward and optimizer of a workload; or its forward pass alone.

    Attributes:
        workload: what it works on; in evaluation mode the step is a forward pass without gradients.
        optimizer: None where gradients are not used.
    """

    def __init__(self, workload: Workload, optimizer: Optimizer | None) -> None:
        self.workload = workload
        self.optimizer = optimizer

    def drop_gradients(self) -> None:
        """Free the gradients of the last step, as each step begins by doing."""
        self.workload.module.zero_grad(set_to_none=True)

    def run(self, enter: Callable[[str], None] = _nobody) -> None:
        """Run it once; `enter` is called with the name of each phase that begins."""
        work = self.workload
        if not work.module.training:
            enter("forward")
            with torch.no_grad():
                work.module(*work.inputs)
            return
        self.drop_gradients()
        enter("forward")
        loss = work.loss(work.module(*work.inputs))
        enter("backward")
        loss.backward()  # type: ignore[no-untyped-call]
        if self.optimizer is not None:
            enter("optimizer")
            self.optimizer.step()


def make_step(
    options: CaptureOptions, device: str, share: Callable[[nn.Module], None] = lambda module: None
) -> TrainingStep:
    """Make the workload on `device`, let the ranks `share` its module, and add the optimizer.

    Raises:
        InputError: the model cannot be made.
    """
    try:
        with torch.device(device):
            workload = load_workload(options)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{options}: the model cannot be made: {one_line(error)}") from error
    share(workload.module)
    parameters = [p for p in workload.module.parameters() if p.requires_grad]
    if not options.train:
        return TrainingStep(workload, None)
    if not parameters:
        raise InputError(f"{options}: the model has no parameters to train")
    optimizer = parse_optimizer(options.optimizer)
    if optimizer is None:
        return TrainingStep(workload, None)
    return TrainingStep(workload, optimizer.make(parameters, RATE, options.foreach))


def real_step(options: CaptureOptions, device: str, seed: int) -> TrainingStep:
    """Make a step on real tensors; see `training_step`."""
    if options.ranks > 1:
        raise InputError(f"a real step is that of one rank, not of {options.ranks}")
    torch.manual_seed(seed)
    return make_step(options, device)


def resolved(options: CaptureOptions) -> dict[str, Any]:
    """Return all options by name, with the defaults of the model filled in."""
    shape, classes = options.shape, options.classes
    if not is_reference(options.model):
        shape, classes = built_in(options.model).filled(shape, classes)
    return {**vars(options), "shape": shape and list(shape), "classes": classes}


def load_workload(options: CaptureOptions) -> Workload:
    """Make the module and its inputs on the default device, in the mode the options ask for.

    Parameters have the dtype of the options by being made while it is PyTorch's default: fake ones
    cannot be converted in place.

    Raises:
        InputError: the model's factory fails, or does not return what it should.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))
    try:
        workload = build_workload(options.model, options.batch, options.shape, options.classes)
    finally:
        torch.set_default_dtype(before)
    workload.module.train(options.train)
    if not options.dropout:
        _without_dropout(workload.module)
    return workload


def _without_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention | nn.RNNBase):
            part.dropout = 0.0
