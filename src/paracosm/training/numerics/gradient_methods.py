"""Methods to compute gradients in this process: one by one, or many in one vectorised call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.factory import describe_error
from paracosm.models.build import sequence_cross_entropy
from paracosm.models.data_sets import TrainingExamples
from paracosm.models.registry import Model
from paracosm.rng import integer_seed
from paracosm.training.numerics.buffers import Buffers, State
from paracosm.training.numerics.parameters import ParameterLayout, Parameters


class Gradient(NamedTuple):
    """The loss of a minibatch and its gradient by the parameters, in the form that these have."""

    loss: float
    gradient: Parameters
    buffers: State | None = None  # of its replica, after it, where it was computed ahead


class PendingGradient:
    """The gradient at `parameters` of the examples `batch`, not yet computed."""

    __slots__ = ("_gradient", "_source", "batch", "lot", "number", "parameters", "replica")

    def __init__(
        self,
        source: Any,
        number: int,
        parameters: Parameters,
        batch: Ints,
        replica: int,
        lot: int | None = None,
    ) -> None:
        self.number = number
        self.replica = replica
        self.parameters: Parameters | None = parameters
        self.batch = batch
        self.lot = lot
        self._source = source
        self._gradient: Gradient | None = None

    @property
    def computed(self) -> bool:
        return self._gradient is not None

    def result(self) -> Gradient:
        """Return the gradient; the first call computes it, perhaps with all others that wait."""
        gradient = self._gradient or self._source.fulfil(self)
        if gradient.buffers is not None:
            self._source.buffers.see(self.replica, gradient.buffers)
            gradient = self._gradient = gradient._replace(buffers=None)
        return gradient

    def discard(self) -> None:
        """Declare that the result is not needed."""
        self._source.forget(self)
        if self._gradient is not None and self._gradient.buffers is not None:
            self._source.buffers.rewind(self.replica)
        self.parameters = None

    def resolve(self, gradient: Gradient) -> None:
        """Set the gradient, and release the parameters."""
        self._gradient = gradient
        self.parameters = None


Item = TypeVar("Item")


class Request(Protocol):
    """A request for a gradient: its parameters and examples."""

    @property
    def number(self) -> int: ...  # picks the stream of random numbers

    @property
    def parameters(self) -> Parameters | None: ...

    @property
    def batch(self) -> Ints: ...

    @property
    def replica(self) -> int: ...  # whose buffers it changes

    @property
    def lot(self) -> int | None: ...  # what a private sum is divided by; None: the examples


class Method(Protocol):
    """A way of computing gradients."""

    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        """Return the gradients of the requests, in their order."""


@runtime_checkable
class StackedMethod(Method, Protocol):
    """One that computes several gradients by products of stacks of tensors."""

    def stacked(self, tensors: Sequence[Tensor], batches: Ints, out: Sequence[Tensor]) -> Tensor:
        """Return losses [requests], and put gradients where tensors are in `out`.

        Tensors are stacks [requests, ...] in the order of the layout, batches [requests, examples].
        """

    def most_together(self, batch: int) -> int:
        """Return how many requests of so many examples one call may take."""


class Stepper:
    """Computes the gradient of one minibatch.

    The module is taken over: its parameters become those of each request. To call it as a function
    of them costs more than the gradient of a small model.
    """

    def __init__(
        self, model: Model, layout: ParameterLayout, traits: Traits, seed: int, buffers: Buffers
    ) -> None:
        self._module = model.module.train()
        self._buffers = buffers
        self._loss, self._labels = model.loss, model.labels
        self._layout = layout
        tensors = dict(self._module.named_parameters())
        self._tensors = [tensors[name] for name in layout.names]
        self._random = traits.random
        self._unused = traits.unused
        self._seed = seed

    def step(
        self, parameters: Parameters, x: Tensor, y: Tensor, number: int, replica: int
    ) -> Gradient:
        """Return loss and gradient.

        `number` picks the stream of random numbers, `replica` the buffers.
        """
        self._buffers.use(replica)
        for tensor, values in zip(self._tensors, self._layout.tensors(parameters), strict=True):
            tensor.data = values
        try:
            with self._stream(number) if self._random else nullcontext():
                loss = self._loss(self._module(x, **self._labels(y)), y)
            gradients = torch.autograd.grad(loss, self._tensors, materialize_grads=self._unused)
        except Exception as error:  # the model is the user's, and may raise anything
            raise InputError(
                f"the model failed on a minibatch of {len(x)} examples: {describe_error(error)}"
            ) from error
        return Gradient(loss.item(), self._layout.in_form_of(parameters, gradients))

    @contextmanager
    def _stream(self, number: int) -> Iterator[None]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer_seed((self._seed, number)))
            yield


class OneByOne:
    """The method that computes gradients one after the other."""

    def __init__(self, stepper: Stepper, data: TrainingExamples) -> None:
        self._step = stepper.step
        self._examples = data.train_examples

    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        gradients = []
        for request in requests:
            assert request.parameters is not None
            x, y = self._examples(request.batch)
            gradients.append(self._step(request.parameters, x, y, request.number, request.replica))
        return gradients


_VMAP_MEMORY = 64 * 2**20  # bytes that one call may take; more left the caches and was slower


def plain_attention() -> AbstractContextManager[None]:
    """Compute attention by products of matrices: for PyTorch's fused kernels vmap has no rule."""
    return sdpa_kernel(SDPBackend.MATH)


class Vectorised:
    """The method that computes gradients by `vmap` over parameters and minibatches.

    It removes the overhead of a call per gradient and saves no arithmetic. As sums are taken in
    another order, gradients agree with those computed one by one to about 1e-7 (relative; 4e-7 for
    convolutions). Where rounding decides at a kink (a ReLU at zero, a tie in max pooling), they may
    take different, equally valid sides: of 64 gradients of the paper's network one did, by 2e-3.

    Only the losses are vectorised; ordinary automatic differentiation goes back from there. As the
    loss of one request depends on no other's parameters, the gradient of their sum is that of each.
    `vmap` of `torch.func.grad` costs as much and imports PyTorch's compiler first, for seconds.
    """

    def __init__(
        self, model: Model, layout: ParameterLayout, data: TrainingExamples, traits: Traits
    ) -> None:
        self._layout = layout
        self._parameters = layout.flatten(model.module)
        self._examples = data.train_examples
        self._activation_bytes = traits.activation_bytes

        def loss(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return model.loss(functional_call(model.module, tensors, (x,), model.labels(y)), y)

        self._losses = vmap(loss)

    def obstacle(self) -> str | None:
        """Try it, and return why the model cannot be vectorised; None if it can."""
        rows = self._parameters.repeat(2, 1)
        try:
            self.differentiate(self._layout.stacks(rows), np.zeros((2, 1), np.int64))
        except Exception as error:  # the model's own code, and all that vmap has no rule for
            return f"the model cannot be vectorised: {describe_error(error)}"
        return None

    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        gradients: list[Gradient] = []
        for chunk in self._chunks(requests):
            gradients += compute_stacked(self, self._layout, chunk)
        return gradients

    def stacked(self, tensors: Sequence[Tensor], batches: Ints, out: Sequence[Tensor]) -> Tensor:
        losses, gradients = self.differentiate(tensors, batches)
        for place, gradient in zip(out, gradients, strict=True):
            place.copy_(gradient)
        return losses

    def differentiate(
        self, tensors: Sequence[Tensor], batches: Ints
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return losses and gradients, as `stacked` does, which puts the latter in their places."""
        inputs, targets = self._examples(batches.reshape(-1))
        x = inputs.view(*batches.shape, *inputs.shape[1:])
        y = targets.view(*batches.shape, *targets.shape[1:])
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        with plain_attention():
            losses = self._losses(dict(zip(self._layout.names, leaves, strict=True)), x, y)
        gradients = torch.autograd.grad(
            losses, leaves, torch.ones(len(batches)), materialize_grads=True
        )
        return losses.detach(), gradients

    def most_together(self, batch: int) -> int:
        # Alive at once: parameters, gradients stacked and by request; activations and theirs.
        request_bytes = 3 * 4 * self._layout.size + 2 * batch * self._activation_bytes
        return max(1, _VMAP_MEMORY // request_bytes)

    def _chunks(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Divide requests into runs of one batch size, each small enough for the memory."""
        for size, run in groupby(requests, key=lambda request: len(request.batch)):
            yield from evenly(list(run), self.most_together(size))


def evenly(items: list[Item], most: int) -> Iterator[list[Item]]:
    """Yield as few parts as there can be of at most so many items, of one size but for one item."""
    parts = -(-len(items) // most)
    for part in range(parts):
        yield items[len(items) * part // parts : len(items) * (part + 1) // parts]


def compute_stacked(
    method: StackedMethod, layout: ParameterLayout, requests: Sequence[Request]
) -> list[Gradient]:
    """Return the gradients of requests of one batch size, by one call of the method.

    Flat vectors are rows of one matrix, whose stacks of tensors are views; none is copied where all
    requests have the same.
    """
    count = len(requests)
    parameters = [request.parameters for request in requests if request.parameters is not None]
    batches = np.concatenate([request.batch for request in requests]).reshape(count, -1)
    flat = [parameter for parameter in parameters if isinstance(parameter, Tensor)]
    if len(flat) < len(parameters):
        tensors = [torch.stack(same) for same in zip(*map(layout.tensors, parameters), strict=True)]
    elif all(other is flat[0] for other in flat):
        tensors = layout.stacks(flat[0].expand(count, -1))
    else:
        tensors = layout.stacks(torch.cat(flat).view(count, -1))
    rows = torch.empty(count, layout.size)
    by_tensor = layout.stacks(rows)
    losses = method.stacked(tensors, batches, by_tensor).tolist()
    gradients: list[Parameters] = list(rows.unbind())
    if len(flat) < len(parameters):
        each_tensor = zip(*[stack.unbind() for stack in by_tensor], strict=True)
        gradients = [
            row if isinstance(parameter, Tensor) else views
            for parameter, row, views in zip(parameters, gradients, each_tensor, strict=True)
        ]
    return [*map(Gradient, losses, gradients)]


_EXAMPLES = 8


@dataclass(frozen=True)
class Traits:
    """What one forward and backward pass shows of a model."""

    random: bool  # it draws random numbers in training, as dropout does
    moving_buffers: bool  # it changes buffers in training, as batch normalisation does
    unused: bool  # the loss does not depend on some of the parameters
    activation_bytes: int  # kept for the backward pass, for one example
    activations: int  # how many tensors these are

    @property
    def obstacle(self) -> str | None:
        """Why one call cannot compute several gradients; None where it can."""
        if self.random:
            return "the model draws random numbers"
        if self.moving_buffers:
            return "the model changes its buffers"
        return None


def inspect_model(
    model: Model, layout: ParameterLayout, data: TrainingExamples, batch: int = _EXAMPLES
) -> Traits:
    """Run a model once in training mode, on few examples of `data`, and leave no trace of it.

    `batch` are the examples of a minibatch: some models cannot be trained on a single one.
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
            hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
            with hooks, plain_attention():
                outputs = module(x, **model.labels(y))
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
                f"inputs of shape {data.input_shape}{alone}: {describe_error(error)}"
            ) from error
        random = not torch.equal(state, torch.random.get_rng_state())
    after = dict(module.named_buffers())
    moving = any(not torch.equal(after[name], buffer) for name, buffer in before.items())
    with torch.no_grad():
        for name, buffer in before.items():
            after[name].copy_(buffer)
    unused = any(gradient is None for gradient in gradients)
    return Traits(random, moving, unused, sum(kept.values()) // len(x), len(kept))


def _examples(data: TrainingExamples, few: int) -> tuple[Tensor, Tensor]:
    x, y = data.sample
    indices = torch.arange(min(few, len(x)))
    if data.classification and y.ndim == 1:
        indices[-1] = y.argmax()
    return x[indices], y[indices]


def _check_outputs(model: Model, outputs: Tensor, targets: Tensor) -> None:
    if model.loss not in (functional.mse_loss, functional.cross_entropy, sequence_cross_entropy):
        return
    loss = "return (module, loss) from its factory, with loss(outputs, targets)"
    if not isinstance(outputs, Tensor):
        raise InputError(f"the model returns {type(outputs).__name__}, not a tensor: {loss}")
    if model.loss is functional.cross_entropy and outputs.ndim > 2 == targets.ndim + 1:
        raise InputError(
            f"the model's outputs have shape {tuple(outputs.shape[1:])} for each example, and its "
            f"target is one label: return a score for each class, such as those of the last step, "
            f"or {loss}"
        )
    # PyTorch would broadcast the two, and train on unintended pairs.
    if model.loss is functional.mse_loss and outputs.shape != targets.shape:
        raise InputError(
            f"the model's outputs have shape {tuple(outputs.shape[1:])} and the targets "
            f"{tuple(targets.shape[1:])}: the mean squared error needs equal ones"
        )


def _check_loss(loss: object) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        description = (
            f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        )
        raise InputError(f"the model's loss must be a scalar tensor, not {description}")
    if not loss.requires_grad:
        raise InputError("the model's loss does not depend on its parameters")
