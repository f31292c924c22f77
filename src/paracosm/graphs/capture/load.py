"""From the model's name to a workload, the same on real and on fake tensors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.factory import call_factory, is_reference
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.graphs.capture.workload import Workload
from paracosm.graphs.models import built_in

__all__ = ["load_workload", "resolved"]

_SMALL = 64  # pixels: images below are those of CIFAR and the like, with ten classes


def resolved(options: CaptureOptions) -> dict[str, Any]:
    """Return all options by name, with the defaults of the model filled in."""
    shape, classes = options.shape, options.classes
    if not is_reference(options.model):
        model = built_in(options.model)
        shape = shape or model.shape
        if classes is None and model.classes:
            small = model.kind == "images" and min(shape[1:]) < _SMALL
            classes = 10 if small else model.classes
    return {**vars(options), "shape": shape and list(shape), "classes": classes}


def load_workload(options: CaptureOptions) -> Workload:
    """Make the module and its inputs on the default device, in the mode the options ask for.

    Parameters have the dtype of the options by being made while it is PyTorch's default: fake ones
    cannot be converted in place.

    Raises:
        InputError: the model's factory fails, or what it returns is none of a module, (module,
            inputs) and a `Workload`.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))
    try:
        workload = (_own if is_reference(options.model) else _built_in)(options)
    finally:
        torch.set_default_dtype(before)
    workload.module.train(options.train)
    if not options.dropout:
        _without_dropout(workload.module)
    return workload


def _built_in(options: CaptureOptions) -> Workload:
    model, filled = built_in(options.model), resolved(options)
    shape, classes, batch = filled["shape"], filled["classes"], options.batch
    factory = getattr(import_module(model.module), model.factory)
    if model.kind == "tokens":
        module = factory(shape)
        vocabulary = next(m for m in module.modules() if isinstance(m, nn.Embedding)).num_embeddings
        tokens, targets = torch.randint(vocabulary, (2, batch, *shape)).unbind()
        return Workload(module, (tokens,), _cross_entropy(targets.flatten()), batch)
    inputs = torch.randn(batch, *shape)
    targets = torch.randint(classes, (batch,))
    return Workload(factory(shape, classes), (inputs,), _cross_entropy(targets), batch)


def _cross_entropy(targets: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda logits: cross_entropy(logits.flatten(0, -2), targets)


def _own(options: CaptureOptions) -> Workload:
    """Call the user's factory and complete what it returns."""
    name = options.model
    offered = {"batch": options.batch, "shape": options.shape, "classes": options.classes}
    made = call_factory("model", name, offered)
    alone = isinstance(made, nn.Module)
    if not alone and options.shape is not None and not _takes(name, "shape"):
        raise InputError(f'model "{name}" makes its own inputs: its factory takes no shape')
    if options.classes is not None and not _takes(name, "classes"):
        raise InputError(f'model "{name}": its factory takes no classes')
    if alone:
        if options.shape is None:
            raise InputError(
                f'model "{name}" returned a module alone: give the shape of one example, or '
                "return (module, inputs)"
            )
        made = (made, torch.randn(options.batch, *options.shape))
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        module, inputs = made
        inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        made = Workload(module, inputs, _mean_output, _examples(inputs, options.batch))
    if not isinstance(made, Workload):
        raise InputError(
            f'model "{name}" returned {type(made).__name__}, not a module, (module, inputs) or a '
            "Workload"
        )
    if made.examples != options.batch:
        raise InputError(
            f'model "{name}" returned {made.examples} examples, not the batch of {options.batch}: '
            "its factory may take batch as a parameter"
        )
    return made


def _takes(reference: str, parameter: str) -> bool:
    """Whether a factory that has been called was given an option, by its name or as all are."""
    module, _, factory = reference.partition(":")
    parameters = inspect.signature(getattr(sys.modules[module], factory)).parameters
    return parameter in parameters or len(parameters) >= 3


def _examples(inputs: tuple[Any, ...], otherwise: int) -> int:
    tensors = (each for each in inputs if isinstance(each, Tensor) and each.dim())
    first = next(tensors, None)
    return otherwise if first is None else len(first)


def _mean_output(outputs: Any) -> Tensor:
    """Return a loss for a module that nobody gave one: its own, or the mean of what it returns."""
    loss = getattr(outputs, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    while isinstance(outputs, tuple | list) and outputs:
        outputs = outputs[0]
    if not isinstance(outputs, Tensor):
        raise InputError(
            f"the model returns {type(outputs).__name__}: return a Workload with a loss for it"
        )
    return outputs if not outputs.dim() else outputs.mean()


def _without_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention | nn.RNNBase):
            part.dropout = 0.0
