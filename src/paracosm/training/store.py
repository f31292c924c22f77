"""Parameters (all of them, or one server's partition), their version, and the rule of an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paracosm.training.contribution import Contribution

__all__ = ["Recorder", "Rule", "Store"]

Rule = Callable[[Any, Any, float], Any]
"""From parameters, direction and relative step to new parameters; see `numerics.update_rule`."""


class Recorder(Protocol):
    """Told of every update, after it was made."""

    def updated(
        self, store: Store, contributions: Sequence[Contribution], staleness: Sequence[int]
    ) -> None: ...


class Store:
    """A vector of parameters that is replaced, never changed, at each update.

    Those who read it hold on to the vector that they read, so that any number of workers share one
    snapshot of each version.
    """

    def __init__(self, parameters: Any, rule: Rule, recorder: Recorder, real: bool) -> None:
        self.parameters = parameters
        self.version = 0
        self._rule = rule
        self._recorder = recorder
        self._real = real

    def apply(
        self,
        contributions: Sequence[Contribution],
        scale: Callable[[Contribution], float] | None = None,
        direction: Callable[[Contribution], Any] | None = None,
        step: float | None = None,
    ) -> None:
        """Update by the mean of the contributions: theta <- rule(theta, mean_i s_i d_i).

        Args:
            contributions: at least one.
            scale: s_i > 0 of a contribution; 1 without it.
            direction: d_i of a contribution; its value without it.
            step: subtract `step` times the mean, whatever the optimizer.
        """
        if not self._real:
            self.replace(contributions, self.parameters)
            return
        weights = [1.0 if scale is None else scale(c) for c in contributions]
        terms = [c.value if direction is None else direction(c) for c in contributions]
        if len(terms) == 1:
            mean = terms[0]
        else:
            mean = sum(w * d for w, d in zip(weights, terms, strict=True)) / sum(weights)
        # The mean scale shortens the step, not the direction: Adam would undo the latter.
        relative = sum(weights) / len(weights)
        if step is None:
            self.replace(contributions, self._rule(self.parameters, mean, relative))
        else:
            self.replace(contributions, self.parameters - step * relative * mean)

    def replace(self, contributions: Sequence[Contribution], parameters: Any) -> None:
        """Update to `parameters`, which came of the contributions."""
        staleness = [contribution.staleness for contribution in contributions]
        self.parameters = parameters
        self.version += 1
        self._recorder.updated(self, contributions, staleness)

    def replace_by_mean(self, contributions: Sequence[Contribution]) -> None:
        """Update to the mean of the contributions' values."""
        self.replace(contributions, sum(c.value for c in contributions) / len(contributions))
