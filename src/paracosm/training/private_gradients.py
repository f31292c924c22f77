"""Gradients of which each example's part is clipped, with noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from paracosm.errors import InputError
from paracosm.models import DataSet, Model
from paracosm.rng import TrainingStream, generator
from paracosm.training.gradient_methods import Gradient, Request, Traits, Vectorised
from paracosm.training.parameters import ParameterLayout
from paracosm.training.privacy import Privacy


class Private:
    """The method that computes (sum_i min(1, C / |g_i|) g_i + noise C z) / B over B examples.

    z is standard normal in each coordinate, from a stream of each request; the norm is that of all
    tensors. Abadi et al., "Deep Learning with Differential Privacy", 2016, algorithm 1.

    Raises:
        InputError: an example's gradient depends on other examples, or cannot be had alone.
    """

    def __init__(
        self,
        privacy: Privacy,
        model: Model,
        layout: ParameterLayout,
        data: DataSet,
        traits: Traits,
        seed: int,
    ) -> None:
        self._privacy = privacy
        self._layout = layout
        self._seed = seed
        self._vectorised = Vectorised(model, layout, data, traits)
        if traits.moving_buffers:
            raise InputError(
                "privacy: the model keeps statistics of minibatches, so an example's gradient "
                "depends on others: use group normalisation in place of batch normalisation"
            )
        if obstacle := traits.obstacle or self._vectorised.obstacle():
            raise InputError(
                f"privacy: {obstacle}, so examples' gradients cannot be had one by one"
            )

    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Gradient:
        assert request.parameters is not None
        tensors, examples = self._layout.tensors(request.parameters), request.batch
        most = self._vectorised.most_together(1)
        sums = [torch.zeros_like(tensor) for tensor in tensors]
        total = 0.0
        for begin in range(0, len(examples), most):
            chosen = examples[begin : begin + most]
            expanded = [each.expand(len(chosen), *each.shape) for each in tensors]
            losses, found = self._vectorised.differentiate(expanded, chosen[:, None])
            total += float(losses.sum())
            norms = torch.stack([each.flatten(1).norm(dim=1) for each in found]).norm(dim=0)
            factors = (self._privacy.clip / norms).clamp(max=1.0)
            for one, each in zip(sums, found, strict=True):
                one += torch.tensordot(factors, each, 1)
        rng = generator(self._seed, TrainingStream.NOISE, request.number)
        scale = self._privacy.noise * self._privacy.clip
        noisy = [(one + scale * _normal(rng, one)) / len(examples) for one in sums]
        return Gradient(total / len(examples), self._layout.in_form_of(request.parameters, noisy))


def _normal(rng: np.random.Generator, like: Tensor) -> Tensor:
    return torch.from_numpy(rng.standard_normal(tuple(like.shape), dtype=np.float32))
