"""The fixed answers to the question what to compute when a gradient is needed."""

from __future__ import annotations

from typing import Protocol

from paracosm.training.gradients.one_by_one import OneByOne
from paracosm.training.gradients.pending import Gradient, Method, PendingGradient
from paracosm.training.gradients.processes import ProcessPool

__all__ = ["Alone", "Policy", "Together"]


class Policy(Protocol):
    """Decides what is computed when a gradient is needed, and how."""

    def compute(
        self, needed: PendingGradient, waiting: dict[int, PendingGradient]
    ) -> tuple[list[PendingGradient], list[Gradient]]:
        """Compute the gradient `needed`, perhaps with others of those `waiting` (it is one)."""

    def wasted(self) -> None:
        """Take note that a gradient was computed and not used."""

    def describe(self) -> str:
        """Say how gradients were computed, and why so."""

    def close(self) -> None:
        """Release what the methods hold."""


class Alone:
    """Computes what is needed, and nothing else."""

    def __init__(self, method: OneByOne, text: str) -> None:
        self._method = method
        self._text = text

    def compute(
        self, needed: PendingGradient, waiting: dict[int, PendingGradient]
    ) -> tuple[list[PendingGradient], list[Gradient]]:
        requests = [needed]
        return requests, self._method.compute(requests)

    def wasted(self) -> None:
        pass

    def describe(self) -> str:
        return self._text

    def close(self) -> None:
        pass


class Together:
    """Computes all that wait."""

    def __init__(self, method: Method, text: str) -> None:
        self._method = method
        self._text = text

    def compute(
        self, needed: PendingGradient, waiting: dict[int, PendingGradient]
    ) -> tuple[list[PendingGradient], list[Gradient]]:
        requests = list(waiting.values())
        return requests, self._method.compute(requests)

    def wasted(self) -> None:
        pass

    def describe(self) -> str:
        return self._text

    def close(self) -> None:
        if isinstance(self._method, ProcessPool):
            self._method.close()
