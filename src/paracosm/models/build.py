"""From a model's name to a module with a loss: for given data, or for one step.

A user's own model is a function `package.module:factory` or `file.py:factory`. It has those of the
parameters `batch`, `shape` (of one example) and `classes` that it needs, by these names, and
returns a module, (module, loss) with loss(outputs, targets), (module, inputs) with a tensor or
several, or a `Workload`. docs/models.md says what each is used for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from paracosm.errors import InputError
from paracosm.factory import call_factory, is_reference
from paracosm.models.data_sets import TrainingExamples, check_fits
from paracosm.models.registry import Model, Workload, built_in, built_in_of


def build_model(name: str, data: TrainingExamples, seed: int, batch: int = 1) -> Model:
    """Build a model for a data set, its initial parameters drawn from `seed`.

    Without a loss of its own a user's model has cross-entropy where the targets are class labels,
    else the mean squared error; one whose `forward` takes `labels` computes its loss itself.
    PyTorch's global stream of random numbers is not touched.

    Raises:
        InputError: an unknown name, a factory that fails, or data that the model cannot take.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if is_reference(name):
            return _own_model(name, data, batch)
        check_fits(name, data.name, data.input_shape)
        if not data.classification:
            raise InputError(f'the model "{name}" classifies; "{data.name}" has no class labels')
        return Model(built_in(name).make(data.input_shape, data.classes), cross_entropy)


def build_workload(
    name: str, batch: int, shape: tuple[int, ...] | None, classes: int | None
) -> Workload:
    """Build a model with random inputs, on PyTorch's default device and of its default dtype.

    `shape` of one example and `classes` to tell apart are the model's own where they are None.
    """
    model = built_in_of(name)
    if model is None:
        return _own_workload(name, batch, shape, classes)
    model.check(shape, classes)
    shape, classes = model.filled(shape, classes)
    module = model.make(shape, classes)
    if classes is None:
        vocabulary = next(m for m in module.modules() if isinstance(m, nn.Embedding)).num_embeddings
        tokens, targets = torch.randint(vocabulary, (2, batch, *shape)).unbind()
        return Workload(module, (tokens,), _cross_entropy(targets.flatten()), batch)
    inputs = torch.randn(batch, *shape)
    return Workload(module, (inputs,), _cross_entropy(torch.randint(classes, (batch,))), batch)


def _cross_entropy(targets: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda logits: cross_entropy(logits.flatten(0, -2), targets)


def _own_model(name: str, data: TrainingExamples, batch: int) -> Model:
    classes = data.classes if data.classification else None
    offered = {"batch": batch, "shape": data.input_shape, "classes": classes}
    made, _ = call_factory("model", name, offered)
    if isinstance(made, Workload):
        raise InputError(
            f'model "{name}" returned a Workload, which has inputs and targets of its own: return '
            f'(module, loss) to train on "{data.name}"'
        )
    module, loss, _ = _parts(name, made)
    if loss is None and "labels" in signature(module.forward).parameters:
        return Model(module, _own_loss, takes_labels=True)
    if loss is None and data.classification:
        loss = cross_entropy if data.sample[1].ndim == 1 else sequence_cross_entropy
    return Model(module, loss or mse_loss)


def _own_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Return the loss that a module has computed, as Hugging Face's models do."""
    loss = _loss_in(outputs)
    if loss is None:
        raise InputError(
            "the model takes labels, and returns no loss: return (module, loss) from its factory"
        )
    return loss


def sequence_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of several labels an example, shape (examples, ...).

    The scores of classes are along the outputs' second axis, as PyTorch has it, or along the last,
    as recurrent networks and transformers have it.

    Raises:
        InputError: the shapes allow both, or neither.
    """
    axis = class_axis(outputs, targets)
    if axis is None:
        raise InputError(
            f"the model's outputs have shape {tuple(outputs.shape[1:])} and the targets "
            f"{tuple(targets.shape[1:])}: along which axis are the scores of classes? Return "
            "(module, loss) from its factory, with loss(outputs, targets)"
        )
    if axis == -1:
        return cross_entropy(outputs.flatten(0, -2), targets.flatten())
    return cross_entropy(outputs, targets)


def class_axis(outputs: Tensor, targets: Tensor) -> int | None:
    """Return along which axis of outputs the scores of classes are, 1 or -1.

    None where the shapes allow neither, or both of two axes.
    """
    second = outputs.ndim == targets.ndim + 1 and outputs.shape[2:] == targets.shape[1:]
    last = outputs.shape[:-1] == targets.shape
    if second and last and outputs.ndim > 2:
        return None
    return 1 if second else -1 if last else None


def _own_workload(
    name: str, batch: int, shape: tuple[int, ...] | None, classes: int | None
) -> Workload:
    offered = {"batch": batch, "shape": shape, "classes": classes}
    made, taken = call_factory("model", name, offered)
    whole = made if isinstance(made, Workload) else None
    module, loss, inputs = (None, None, None) if whole else _parts(name, made)
    alone = whole is None and inputs is None
    if shape is not None and not alone and "shape" not in taken:
        raise InputError(f'model "{name}" makes its own inputs: its factory takes no shape')
    if classes is not None and loss is None and "classes" not in taken:
        raise InputError(f'model "{name}": its factory takes no classes')
    if module is not None:
        if inputs is None:
            if shape is None:
                raise InputError(
                    f'model "{name}" returned no inputs: give the shape of one example '
                    "(--shape 3x32x32), or return (module, inputs)"
                )
            inputs = (torch.randn(batch, *shape),)
        judge = _mean_output if loss is None else _on_labels(name, loss, batch, classes)
        whole = Workload(module, inputs, judge, _examples(inputs, batch))
    assert whole is not None
    if whole.examples != batch:
        raise InputError(
            f'model "{name}" returned {whole.examples} examples, not the batch of {batch}: '
            "its factory may take batch as a parameter"
        )
    return whole


def _parts(name: str, made: Any) -> tuple[nn.Module, Any, tuple[Any, ...] | None]:
    if isinstance(made, nn.Module):
        return made, None, None
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        module, second = made
        if isinstance(second, Tensor | Mapping):
            return module, None, (second,)
        if isinstance(second, tuple | list):
            return module, None, tuple(second)
        if callable(second):
            return module, second, None
        raise InputError(
            f'model "{name}" returned a module with {type(second).__name__}, which is neither a '
            "loss nor inputs"
        )
    raise InputError(
        f'model "{name}" returned {type(made).__name__}, not a torch.nn.Module, (module, loss), '
        "(module, inputs) or a Workload"
    )


def _on_labels(name: str, loss: Any, batch: int, classes: int | None) -> Callable[[Any], Tensor]:
    if classes is None:
        raise InputError(
            f'model "{name}" returned a loss of outputs and targets: give the classes that it '
            "tells apart, or return a Workload"
        )
    targets = torch.randint(classes, (batch,))
    return lambda outputs: loss(outputs, targets)


def _examples(inputs: tuple[Any, ...], otherwise: int) -> int:
    tensors = (tensor for tensor in inputs if isinstance(tensor, Tensor) and tensor.dim())
    first = next(tensors, None)
    return otherwise if first is None else len(first)


def _mean_output(outputs: Any) -> Tensor:
    """Return a default loss for a module: its own, or the mean of what it returns.

    Of several outputs, in tuples, mappings or data classes (as those of Hugging Face's models), it
    is the mean of the first that a gradient goes through, or else of the first with fractions.
    """
    loss = _loss_in(outputs)
    if loss is not None:
        return loss
    tensors = [tensor for tensor in _tensors_in(outputs) if tensor.is_floating_point()]
    if not tensors:
        raise InputError(
            f"the model returns {type(outputs).__name__}, without a tensor of fractions: return a "
            "Workload with a loss for it"
        )
    first = next((tensor for tensor in tensors if tensor.requires_grad), tensors[0])
    return first if not first.dim() else first.mean()


def _loss_in(outputs: Any) -> Tensor | None:
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    return loss if isinstance(loss, Tensor) else None


def _tensors_in(outputs: Any) -> Iterator[Tensor]:
    """Yield the tensors of outputs, in their order."""
    if isinstance(outputs, Tensor):
        yield outputs
        return
    parts: Iterable[Any] = ()
    if isinstance(outputs, Mapping):
        parts = outputs.values()
    elif isinstance(outputs, tuple | list):
        parts = outputs
    elif is_dataclass(outputs):
        parts = (getattr(outputs, field.name, None) for field in fields(outputs))
    for part in parts:
        yield from _tensors_in(part)
