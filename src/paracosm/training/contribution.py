"""A gradient that a worker made, and the contribution that it becomes where it is applied."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Contribution", "Gradient", "Pending", "Versioned"]


class Pending(Protocol):
    """A gradient that is computed at the latest when its result is asked for."""

    def result(self) -> Any:
        """Return an object with `loss` (a float) and `gradient` (a flat vector)."""

    def discard(self) -> None:
        """Say that nobody will ask for the result."""


class Versioned(Protocol):
    """Parameters that know how often they were updated."""

    @property
    def version(self) -> int: ...


class Gradient:
    """A minibatch gradient of one worker, computed when first looked at.

    Attributes:
        worker: the name of the worker that made it.
        parameters: the flat vector that it is a gradient at.
        versions: how often each server's part of `parameters` had been updated when it was read.
        examples: how many examples it was computed from.
    """

    __slots__ = ("examples", "parameters", "pending", "versions", "worker")

    def __init__(
        self, worker: str, parameters: Any, versions: list[int], examples: int, pending: Pending
    ) -> None:
        self.worker = worker
        self.parameters = parameters
        self.versions = versions
        self.examples = examples
        self.pending = pending

    @property
    def value(self) -> Any:
        """The gradient, a flat vector."""
        return self.pending.result().gradient

    @property
    def loss(self) -> float:
        """The mean loss over the minibatch."""
        loss: float = self.pending.result().loss
        return loss


class Contribution:
    """What one worker brings to one update of one partition of the parameters.

    It refers to the newest gradient that the worker computed. Its payload is that gradient or, in
    algorithms that exchange parameters or their changes, a vector.
    """

    __slots__ = ("_part", "_payload", "_target", "gradient", "read_version", "size")

    def __init__(
        self,
        gradient: Gradient,
        payload: Any,
        part: slice | None,
        read_version: int,
        target: Versioned,
        size: float = 0.0,
    ) -> None:
        self.gradient = gradient
        self.read_version = read_version
        self.size = size
        self._payload = payload
        self._part = part
        self._target = target

    @property
    def worker(self) -> str:
        """The name of the worker that it comes from."""
        return self.gradient.worker

    @property
    def staleness(self) -> int:
        """The number of updates of the target since the worker read it."""
        return self._target.version - self.read_version

    @property
    def value(self) -> Any:
        """The payload's part that belongs to the target, a flat vector."""
        payload = self._payload
        whole = payload.value if isinstance(payload, Gradient) else payload
        return whole if self._part is None else whole[self._part]

    @property
    def read_parameters(self) -> Any:
        """The target's parameters as the gradient was computed from them."""
        whole = self.gradient.parameters
        return whole if self._part is None else whole[self._part]
