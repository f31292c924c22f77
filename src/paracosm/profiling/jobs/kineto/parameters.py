"""The parameters of a profile: their names and bytes, from the trace or from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from paracosm.errors import InputError, require
from paracosm.factory import one_line
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.profiling.jobs.kineto.gradients import Gradient

__all__ = ["Parameter", "named", "parameters_of_model", "without_model"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that has a gradient.

    Attributes:
        name: "layer1.0.conv1.weight"; without a model, that of the op that takes it.
        shape: sizes.
        size: bytes.
    """

    name: str
    shape: tuple[int, ...]
    size: int


def parameters_of_model(options: CaptureOptions) -> tuple[Parameter, ...]:
    """Return a model's parameters in the order in which a backward pass hands them gradients.

    The order is found by a step on fake tensors, which computes nothing. Parameters that are frozen
    or not used have no gradient and are not among them; one that is tied has its first name.

    Args:
        options: the model's name and what its size depends on (shape, classes, dtype).

    Raises:
        InputError: the model cannot be made or does not run.
        MissingExtraError: PyTorch is not installed.
    """
    require("torch", "torch", "the parameters of a model")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from paracosm.graphs.capture.step import make_step

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
        try:
            step.run()
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{options}: the model failed: {one_line(error)}") from error
    return tuple(order)


def named(
    gradients: Sequence[Gradient], parameters: Sequence[Parameter], where: str
) -> tuple[Parameter, ...]:
    """Return the parameter of each gradient: the next of its shape, or without shapes, the next.

    Raises:
        InputError: the model has other parameters than the trace has gradients.
    """
    if len(gradients) != len(parameters):
        raise InputError(
            f"{where}: a step has {len(gradients)} gradients, but the model has "
            f"{len(parameters)}: name the model that was traced"
        )
    left = list(parameters)
    found = []
    for at, gradient in enumerate(gradients):
        fits = (each for each in left if gradient.shape in (None, each.shape))
        parameter = next(fits, None)
        if parameter is None:
            raise InputError(
                f"{where}: gradient {at} of a step has the shape {_written(gradient.shape)}, but "
                f"the model has {left[0].name} of {_written(left[0].shape)}: name the model that "
                "was traced, with the shape of an example and the number of classes"
            )
        left.remove(parameter)
        size = parameter.size if gradient.size < 0 else gradient.size
        found.append(Parameter(parameter.name, parameter.shape, size))
    return tuple(found)


def without_model(gradients: Sequence[Gradient]) -> tuple[Parameter, ...]:
    """Return the parameter of each gradient, with the name of the op that takes it."""
    return tuple(
        Parameter(
            f"{each.taken_by.removeprefix('aten::') or 'parameter'} {_written(each.shape)}",
            each.shape or (),
            each.size,
        )
        for each in gradients
    )


def _written(shape: tuple[int, ...] | None) -> str:
    return "x".join(str(size) for size in shape or ()) or "scalar"
