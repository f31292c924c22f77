"""Gradients of dense networks in closed form: a few products of matrices, without autograd.

For linear layers and elementwise activations in a chain, back-propagation is (Rumelhart, Hinton,
Williams, "Learning Representations by Back-Propagating Errors", 1986), with z_l = a_{l-1} W_l^T +
b_l and a_l = f_l(z_l),

    dW_l = dz_l^T a_{l-1},  db_l = sum over examples of dz_l,  dz_{l-1} = (dz_l W_l) * f'_{l-1}

and dz of the last layer, over B examples, (softmax(z) - one-hot(y)) / B for cross-entropy and
2 (z - y) / (B C) for the mean squared error of C outputs. On small models most of the time of
automatic differentiation is bookkeeping, which this saves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from paracosm.arrays import Ints
from paracosm.models.data_sets import TrainingExamples
from paracosm.models.images import MLP
from paracosm.models.registry import Model
from paracosm.training.numerics.gradient_methods import Gradient, Request, compute_stacked, evenly
from paracosm.training.numerics.parameters import ParameterLayout

_MOST_TOGETHER = 2**22
"""Parameters times examples of a minibatch up to which one product for several gradients is faster
than one after the other: beyond, products are bound by arithmetic and by the caches."""

_CACHE = 2**22
"""Bytes of parameters, gradients and activations that one call should not exceed by far."""


@dataclass(frozen=True)
class _Linear:
    weight: int  # its place among the model's tensors
    bias: int | None


@dataclass(frozen=True)
class _Activation:
    apply: Callable[[Tensor], Tensor]  # in place
    differentiate: Callable[[Tensor, Tensor], Tensor]  # from the gradient and what `apply` gave


_aten = torch.ops.aten
_ACTIVATIONS: dict[type[nn.Module], _Activation] = {
    nn.ReLU: _Activation(
        torch.relu_, lambda d, a: _aten.threshold_backward.grad_input(d, a, 0, grad_input=d)
    ),
    nn.Tanh: _Activation(torch.tanh_, _aten.tanh_backward.default),
    nn.Sigmoid: _Activation(torch.sigmoid_, _aten.sigmoid_backward.default),
}


class _Products(NamedTuple):
    affine: Callable[[Tensor, Tensor, Tensor], Tensor]  # of a bias, what comes in, and weights
    linear: Callable[[Tensor, Tensor], Tensor]  # of what comes in, and weights
    outer: Callable[..., Tensor]  # over the examples


def _affine_by_one(bias: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    return torch.addmm(bias[0, 0], x.flatten(0, 1), weights[0]).view(*x.shape[:2], -1)


def _linear_by_one(x: Tensor, weights: Tensor) -> Tensor:
    return torch.mm(x.flatten(0, 1), weights[0]).view(*x.shape[:2], -1)


_ALONE = _Products(torch.addmm, torch.mm, torch.mm)
_STACKED = _Products(torch.baddbmm, torch.bmm, torch.bmm)
_SHARED = _Products(_affine_by_one, _linear_by_one, torch.bmm)  # of stacks of one matrix


class Dense:
    """The method that computes gradients of a dense network in closed form.

    Products are those that automatic differentiation takes, so one gradient with labels is its own
    to the bit; several together agree to rounding. Size alone decides which it is.
    """

    def __init__(
        self,
        chain: Sequence[_Linear | _Activation],
        model: Model,
        layout: ParameterLayout,
        data: TrainingExamples,
    ) -> None:
        self._chain = chain
        self._first = next(link for link in chain if isinstance(link, _Linear))
        self._layout = layout
        self._examples = data.train_examples
        linear = [layout.shapes[layer.weight] for layer in chain if isinstance(layer, _Linear)]
        self._widths = sum(outputs + inputs for outputs, inputs in linear)
        self._is_labelled = model.loss is functional.cross_entropy
        self._minus_one = torch.tensor(-1.0)

    def pays_together(self, batch: int) -> bool:
        """Whether several gradients at once are faster than one by one."""
        return self._layout.size * batch <= _MOST_TOGETHER

    @torch.no_grad()
    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        """Return the gradients, together those of minibatches of one size."""
        gradients: list[Gradient] = []
        for size, run in groupby(requests, key=lambda request: len(request.batch)):
            group = list(run)
            if len(group) > 1 and self.pays_together(size):
                for part in evenly(group, self.most_together(size)):
                    gradients += compute_stacked(self, self._layout, part)
            else:
                gradients += map(self._alone, group)
        return gradients

    @torch.no_grad()
    def stacked(self, tensors: Sequence[Tensor], batches: Ints, out: Sequence[Tensor]) -> Tensor:
        x, y = self._examples(batches.reshape(-1))
        loss, _ = self._differentiate(
            # Rows of a bias are added to all examples of their request.
            [tensor.unsqueeze(1) if tensor.ndim == 2 else tensor for tensor in tensors],
            x.view(*batches.shape, -1),
            y.view(*batches.shape, *y.shape[1:]),
            _STACKED if tensors[0].stride(0) else _SHARED,
            out,
        )
        return loss

    def most_together(self, batch: int) -> int:
        request_bytes = 2 * 4 * (self._layout.size + batch * self._widths)
        return max(8, _CACHE // request_bytes) if self.pays_together(batch) else 1

    def _alone(self, request: Request) -> Gradient:
        assert request.parameters is not None
        tensors = self._layout.tensors(request.parameters)
        x, y = self._examples(request.batch)
        loss, gradients = self._differentiate(
            tensors, x.flatten(1), y, _ALONE, [None] * len(tensors)
        )
        return Gradient(loss.item(), self._layout.in_form_of(request.parameters, gradients))

    def _differentiate(
        self,
        tensors: Sequence[Tensor],
        x: Tensor,  # [..., examples, inputs]
        y: Tensor,  # [..., examples]: labels; or [..., examples, outputs]: values
        products: _Products,
        out: Sequence[Tensor | None],  # where gradients are to go
    ) -> tuple[Tensor, list[Any]]:
        """Return the loss and the gradient of each tensor, of matrices or of stacks of them."""
        affine, linear, outer = products
        passed = [x]
        for link in self._chain:
            before = passed[-1]
            if isinstance(link, _Activation):
                passed.append(link.apply(before))
            elif link.bias is None:
                passed.append(linear(before, tensors[link.weight].mT))
            else:
                passed.append(affine(tensors[link.bias], before, tensors[link.weight].mT))
        loss, delta = self._judge(passed[-1], y)
        gradients: list[Any] = [None] * len(tensors)
        for link, before, after in zip(
            reversed(self._chain), passed[-2::-1], passed[::-1], strict=False
        ):
            if isinstance(link, _Activation):
                delta = link.differentiate(delta, after)
                continue
            gradients[link.weight] = outer(delta.mT, before, out=out[link.weight])
            if link.bias is not None:
                gradients[link.bias] = torch.sum(delta, -2, out=out[link.bias])
            if link is self._first:
                break
            delta = linear(delta, tensors[link.weight])
        return loss, gradients

    def _judge(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        examples, count = outputs.shape[-2:]
        if not self._is_labelled:
            off = outputs - y
            return off.square().mean((-2, -1)), off.mul_(2 / (examples * count))
        if y.ndim == 1:
            scores = torch.log_softmax(outputs, -1)
            by_score = torch.zeros_like(scores).scatter_(-1, y.unsqueeze(-1), -1 / examples)
            delta = _aten._log_softmax_backward_data(by_score, scores, -1, scores.dtype)
            return functional.nll_loss(scores, y), delta
        # Few consecutive classes would leave most of a vector register empty.
        scores = torch.log_softmax(outputs.mT, 1)
        labels = y.unsqueeze(1)
        loss = scores.gather(1, labels).sum((1, 2)).mul_(-1 / examples)
        delta = scores.exp_().scatter_add_(1, labels, self._minus_one.expand_as(labels))
        return loss, delta.mul_(1 / examples).mT


def dense_method(model: Model, layout: ParameterLayout, data: TrainingExamples) -> Dense | None:
    """Return the method for a model that is such a chain; None for any other.

    A chain is a `Sequential` (or a built-in mlp) of `Linear`, `ReLU`, `Tanh`, `Sigmoid`, `Identity`
    and a first `Flatten`, without hooks, all of whose parameters are trained, with PyTorch's
    cross-entropy of one label an example or its mean squared error.
    """
    x, y = data.sample
    is_labelled = model.loss is functional.cross_entropy and y.ndim == 1 and int(y.min()) >= 0
    if not is_labelled and not (model.loss is functional.mse_loss and y.ndim == 2):
        return None
    modules = list(_links(model.module))
    if type(modules[0]) is nn.Flatten:
        if (modules[0].start_dim, modules[0].end_dim) != (1, -1):
            return None
        del modules[0]
    elif x.ndim != 2:
        return None
    places = {
        id(p): layout.names.index(name)
        for name, p in model.module.named_parameters()
        if name in layout.names
    }
    chain: list[_Linear | _Activation] = []
    for module in modules:
        if type(module) is nn.Linear:
            bias = None if module.bias is None else places.get(id(module.bias), -1)
            chain.append(_Linear(places.get(id(module.weight), -1), bias))
        elif type(module) in _ACTIVATIONS:
            chain.append(_ACTIVATIONS[type(module)])
        elif type(module) is not nn.Identity:
            return None
    linear = [link for link in chain if isinstance(link, _Linear)]
    used = [place for link in linear for place in (link.weight, link.bias) if place is not None]
    hooked = any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
        for module in model.module.modules()
    )
    if hooked or sorted(used) != list(range(len(layout.names))):
        return None
    return Dense(chain, model, layout, data)


def _links(module: nn.Module) -> Iterator[nn.Module]:
    """Yield what a module passes its inputs through; itself where that is not known."""
    if type(module) is MLP:
        yield nn.Flatten()
        yield from module.layers
    elif type(module) is nn.Sequential:
        for submodule in module:
            yield from _links(submodule)
    else:
        yield module
