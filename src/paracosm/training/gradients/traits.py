"""What must be known of a model before its gradients can be computed together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.models import DataSet, Model
from paracosm.training.parameters import ParameterLayout

__all__ = ["Traits", "inspect_model"]

_EXAMPLES = 8


@dataclass(frozen=True)
class Traits:
    """What one forward and backward pass shows of a model."""

    random: bool  # it draws random numbers in training, as dropout does
    moving_buffers: bool  # it changes buffers in training, as batch normalisation does
    unused: bool  # the loss does not depend on some of the parameters
    activation_bytes: int  # kept for the backward pass, for one example

    @property
    def obstacle(self) -> str | None:
        """Why one call cannot compute several gradients; None where it can."""
        if self.random:
            return "the model draws random numbers"
        if self.moving_buffers:
            return "the model changes its buffers"
        return None


def inspect_model(
    model: Model, layout: ParameterLayout, data: DataSet, batch: int = _EXAMPLES
) -> Traits:
    """Run a model once in training mode, on few examples, and leave no trace of it.

    Args:
        model: module and loss.
        layout: of the module's parameters.
        data: the training examples are used.
        batch: examples of a minibatch; some models cannot be trained on a single one.

    Raises:
        InputError: the model cannot be trained on the data.
    """
    x, y = _examples(data, min(batch, _EXAMPLES))
    module = model.module.train()
    tensors = dict(module.named_parameters())
    parameters = [tensors[name] for name in layout.names]
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    known = {tensor.untyped_storage().data_ptr() for tensor in (*parameters, x, y)}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.random.fork_rng(devices=[]):
        state = torch.random.get_rng_state()
        try:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                outputs = module(x)
                _check_outputs(model, outputs, y)
                loss = model.loss(outputs, y)
            _check_loss(loss)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        except InputError:
            raise
        except Exception as error:
            alone = ", one at a time" if len(x) == 1 else ""
            raise InputError(
                f'the model cannot be trained on "{data.name}", '
                f"inputs of shape {data.input_shape}{alone}: {one_line(error)}"
            ) from error
        random = not torch.equal(state, torch.random.get_rng_state())
    after = dict(module.named_buffers())
    moving = any(not _same(after[name], buffer) for name, buffer in before.items())
    with torch.no_grad():
        for name, buffer in before.items():
            after[name].copy_(buffer)
    unused = any(gradient is None for gradient in gradients)
    return Traits(random, moving, unused, sum(kept.values()) // len(x))


def _examples(data: DataSet, few: int) -> tuple[Tensor, Tensor]:
    """Return a few training examples, one of them with the highest label."""
    indices = torch.arange(min(few, len(data.train_x)))
    if data.classification and data.train_y.ndim == 1:
        indices[-1] = data.train_y.argmax()
    return data.train_x[indices], data.train_y[indices]


def _check_outputs(model: Model, outputs: Tensor, targets: Tensor) -> None:
    # PyTorch would broadcast the two, and train on something that nobody meant.
    if model.loss is functional.mse_loss and outputs.shape != targets.shape:
        raise InputError(
            f"the model's outputs have shape {tuple(outputs.shape[1:])} and the targets "
            f"{tuple(targets.shape[1:])}: the mean squared error needs equal ones"
        )


def _check_loss(loss: object) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(f"the model's loss must be a scalar tensor, not {what}")
    if not loss.requires_grad:
        raise InputError("the model's loss does not depend on its parameters")


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.eq(one, other).all())
