"""A gradient that was asked for, and the gradient that comes of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

__all__ = ["Gradient", "Method", "PendingGradient"]


class Gradient(NamedTuple):
    """The loss of a minibatch and its gradient by the flat parameter vector."""

    loss: float
    gradient: Tensor


class _Source(Protocol):
    def fulfil(self, request: PendingGradient) -> Gradient: ...

    def forget(self, request: PendingGradient) -> None: ...


class PendingGradient:
    """The gradient at `parameters` of the examples `batch`, not yet computed."""

    __slots__ = ("_gradient", "_source", "batch", "number", "parameters")

    def __init__(
        self, source: _Source, number: int, parameters: Tensor, batch: npt.NDArray[np.int64]
    ) -> None:
        self.number = number
        self.parameters: Tensor | None = parameters
        self.batch = batch
        self._source = source
        self._gradient: Gradient | None = None

    @property
    def computed(self) -> bool:
        """Whether the gradient is there."""
        return self._gradient is not None

    def result(self) -> Gradient:
        """Return the gradient; the first call computes it, perhaps with all others that wait."""
        return self._gradient or self._source.fulfil(self)

    def discard(self) -> None:
        """Say that nobody will need the result; it may be, or may not be, computed already."""
        self._source.forget(self)
        self.parameters = None

    def resolve(self, gradient: Gradient) -> None:
        """Hand in the gradient, and let go of the parameters."""
        self._gradient = gradient
        self.parameters = None


class Method(Protocol):
    """A way of computing gradients."""

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        """Return the gradients of the requests, in their order."""
