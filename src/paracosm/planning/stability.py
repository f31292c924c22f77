"""When delayed gradients diverge: the bound of a delayed linear iteration, and the curvature."""

from __future__ import annotations

from math import pi, sin
from typing import TYPE_CHECKING

import numpy as np

from paracosm.rng import PlanningStream, generator

if TYPE_CHECKING:
    from torch import Tensor

    from paracosm.models.registry import Model
    from paracosm.training.numerics.parameters import ParameterLayout

ITERATIONS = 40
"""Of the power method, which then has the largest eigenvalue to a few per cent, from below."""

EXAMPLES = 512
"""Examples of the training set for the curvature, evenly spread."""


def delay_bound(delay: float) -> float:
    """Return the upper bound of step size times curvature, for a delay in updates.

    x_{k+1} = x_k - eta lambda x_{k - delay} is stable if and only if
    0 < eta lambda < 2 sin(pi / (2 (2 delay + 1))): Levin, May, "A note on difference-delay
    equations", 1976. Without delay that is 2. Fractional delays, such as means, are interpolated.
    """
    return 2 * sin(pi / (2 * (2 * delay + 1)))


def largest_curvature(
    model: Model, layout: ParameterLayout, parameters: Tensor, x: Tensor, y: Tensor, seed: int
) -> float:
    """Return the largest eigenvalue, by magnitude, of the Hessian of the mean loss over examples.

    By the power method on Hessian-vector products (Pearlmutter, "Fast Exact Multiplication by the
    Hessian", 1994), `ITERATIONS` of them from a random vector that `seed` draws, over `EXAMPLES` of
    the examples at most. The result is a Rayleigh quotient, never above the eigenvalue.

    Args:
        model: whose loss it is; left as it is.
        layout: of its parameters.
        parameters: at which, a flat vector.
        x, y: examples and their targets.
        seed: of the first vector.
    """
    import torch
    from torch.func import functional_call

    chosen = np.linspace(0, len(x) - 1, min(EXAMPLES, len(x))).round().astype(np.int64)
    inputs, targets = x[chosen], y[chosen]
    flat = parameters.detach().clone().requires_grad_()
    was_training = model.module.training
    model.module.eval()
    try:
        tensors, labels = layout.unflatten(flat), model.labels(targets)
        outputs = functional_call(model.module, tensors, (inputs,), labels)
        (slope,) = torch.autograd.grad(model.loss(outputs, targets), flat, create_graph=True)
        drawn = generator(seed, PlanningStream.CURVATURE).standard_normal(len(flat))
        vector = torch.from_numpy(drawn).to(flat.dtype)
        quotient = 0.0
        for _ in range(ITERATIONS):
            vector = vector / vector.norm()
            (product,) = torch.autograd.grad(slope, flat, vector, retain_graph=True)
            quotient = float(vector @ product)
            if float(product.norm()) == 0:
                break
            vector = product
        return quotient
    finally:
        model.module.train(was_training)
