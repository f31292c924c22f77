"""Gradients whose norm is limited, whoever holds which part of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_EPSILON = 1e-6
"""Added to the norm, as PyTorch does."""


class Clipping:
    """Shortens what an update applies to a norm of at most `limit`.

    The mean gradient of an update is multiplied by min(1, limit / (norm + 1e-6)), as
    `torch.nn.utils.clip_grad_norm_` does after the all-reduce of data-parallel training; the norm
    is that of all tensors together (Pascanu, Mikolov, Bengio, "On the Difficulty of Training
    Recurrent Neural Networks", 2013, section 3.2). Parts of one gradient, which change one after
    the other, are all shortened by the norm of the whole.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._newest: tuple[list[Any], list[float], float] = ([], [], 1.0)

    def factor(self, gradients: Sequence[Any], weights: Sequence[float], times: int = 1) -> float:
        """Return the factor, at most 1, of so many times the weighted mean of whole gradients.

        Args:
            gradients: flat vectors, or tuples of tensors.
            weights: of each, above 0.
        """
        # The parts of one gradient are asked for one after the other.
        known, weighted, found = self._newest
        is_same = len(known) == len(gradients) and weighted == list(weights)
        if is_same and all(a is b for a, b in zip(known, gradients, strict=True)):
            return found
        norm = times * _norm_of_mean(gradients, weights)
        # Written so that a norm that is not a number shortens nothing, and shows in the loss.
        found = self._limit / (norm + _EPSILON) if norm + _EPSILON > self._limit else 1.0
        self._newest = (list(gradients), list(weights), found)
        return found

    def clip_rows(self, gradients: Any) -> None:
        """Shorten the rows of a matrix, each a gradient of its own, in place."""
        norms = gradients.norm(dim=1, keepdim=True)
        gradients.mul_((self._limit / (norms + _EPSILON)).clamp(max=1.0))


def _norm_of_mean(gradients: Sequence[Any], weights: Sequence[float]) -> float:
    import torch

    forms = [each if isinstance(each, tuple) else (each,) for each in gradients]
    total = sum(weights)
    means = forms[0]
    if len(forms) > 1:
        means = tuple(
            sum(w * tensor for w, tensor in zip(weights, same, strict=True)) / total
            for same in zip(*forms, strict=True)
        )
    norms = torch.stack([torch.linalg.vector_norm(mean) for mean in means])
    return float(torch.linalg.vector_norm(norms))
