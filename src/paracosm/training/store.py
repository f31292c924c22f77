"""Parameters that are updated, what workers contribute to updates, and what computes it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paracosm.results import Chance

Part = slice | int
"""What one server or tensor has of the parameters: parameters[part]."""

Rule = Callable[[Any, Any, float], Any]
"""From parameters, direction and relative step to new parameters; see `numerics.update_rule`.

A deep copy of a rule has a state of its own.
"""

Record = Callable[["Store", Sequence["Contribution"], Sequence[int]], None]
"""Told of every update of a store and the staleness of its contributions, after it was made."""


Saved = tuple[Any, int, Rule]


class Weighting(Protocol):
    """What an algorithm makes of contributions; `algorithms.Algorithm` says what each means."""

    @property
    def compensates(self) -> bool: ...

    @property
    def server_step(self) -> float | None: ...

    def weight(self, staleness: int, workers: int) -> float: ...

    def direction(self, gradient: Any, moved: Any) -> Any: ...


class Store:
    """A vector of parameters that is replaced, never changed, at each update.

    Those who read it hold on to the vector that they read, so that any number of workers share one
    snapshot of each version.
    """

    def __init__(
        self,
        parameters: Any,
        rule: Rule,
        record: Record,
        real: bool,  # whether there are values at all
        weighting: Weighting,
        workers: int,  # how many contribute
    ) -> None:
        self.parameters = parameters
        self.version = 0
        self._rule = rule
        self._record = record
        self._real = real
        self._weighting = weighting
        self._compensates = weighting.compensates
        self._server_step = weighting.server_step
        self._workers = workers

    def apply(self, contributions: Sequence[Contribution]) -> None:
        """Update by the mean of at least one contribution: theta <- rule(theta, mean_i w_i d_i).

        Weights w and directions d are the algorithm's. Where workers made steps of their own, their
        mean is subtracted as it is, whatever the optimizer.
        """
        if not self._real:
            self.replace(contributions, self.parameters)
            return
        by, step = self._weighting, self._server_step
        weights = [by.weight(c.staleness, self._workers) for c in contributions]
        terms = [
            by.direction(
                c.value, self.parameters - c.read_parameters if self._compensates else None
            )
            for c in contributions
        ]
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
        self._record(self, contributions, staleness)

    def save(self) -> Saved:
        """Return what `restore` needs to put parameters, version and optimizer back."""
        return self.parameters, self.version, deepcopy(self._rule)

    def restore(self, saved: Saved) -> None:
        self.parameters, self.version, rule = saved
        self._rule = deepcopy(rule)

    def replace_by_mean(self, contributions: Sequence[Contribution]) -> None:
        self.replace(contributions, sum(c.value for c in contributions) / len(contributions))


class Pending(Protocol):
    """A gradient that is computed at the latest when its result is asked for."""

    def result(self) -> Any:
        """Return an object with `loss` (a float) and `gradient` (a flat vector)."""

    def discard(self) -> None:
        """Say that nobody will ask for the result."""


@dataclass(eq=False, slots=True)
class Gradient:
    """A minibatch gradient of one worker, computed when first looked at."""

    worker: str  # the name of the worker that made it
    parameters: Any  # that it is a gradient at
    versions: list[int]  # how often each server's part had been updated when it was read
    examples: int  # how many it was computed from
    pending: Pending

    @property
    def value(self) -> Any:
        return self.pending.result().gradient

    @property
    def loss(self) -> float:
        loss: float = self.pending.result().loss
        return loss


@dataclass(eq=False, slots=True)
class Contribution:
    """What one worker brings to one update of one partition of the parameters.

    It refers to the newest gradient that the worker computed. Its payload is that gradient or, in
    algorithms that exchange parameters or their changes, a vector.
    """

    gradient: Gradient
    payload: Any
    part: Part | None
    read_version: int
    target: Store

    @property
    def worker(self) -> str:
        return self.gradient.worker

    @property
    def staleness(self) -> int:
        """The number of updates of the target since the worker read it."""
        return self.target.version - self.read_version

    @property
    def value(self) -> Any:
        """The payload's part that belongs to the target, a flat vector."""
        whole = self.payload.value if isinstance(self.payload, Gradient) else self.payload
        return whole if self.part is None else whole[self.part]

    @property
    def read_parameters(self) -> Any:
        """The target's parameters as the gradient was computed from them."""
        whole = self.gradient.parameters
        return whole if self.part is None else whole[self.part]


class Numerics:
    """The computing side of a run.

    This one computes nothing: its vectors have length zero, so that algorithms go through their
    motions at no cost.
    """

    real = False
    chance: Chance | None = None  # what guessing comes to
    loss = float("nan")
    gradient: Any = np.zeros(0, dtype=np.float32)

    def __init__(self, sizes: tuple[float, ...]) -> None:
        # Of the parameters, by server: slices of the vector; places where they are tuples
        self.parts: tuple[Part, ...] = (slice(0, 0),) * len(sizes)
        self.sizes = sizes  # bytes of each part, as a message

    def initial(self) -> Any:
        """Return the initial parameters."""
        return self.gradient

    def join(self, parts: Sequence[Any]) -> Any:
        """Return the parameters that consist of the parts."""
        return self.gradient

    def flat(self, parameters: Any) -> Any:
        """Return parameters that `join` made as one flat vector."""
        return parameters

    def request(self, worker: int, parameters: Any) -> Pending:
        """Ask for a gradient of the worker's next minibatch at `parameters`."""
        return self

    def result(self) -> Any:
        return self

    def discard(self) -> None:
        pass

    def rule(self) -> Rule:
        """Return an update rule with a state of its own."""
        return lambda parameters, direction, step: parameters

    def evaluate(self, parameters: Any) -> dict[str, float]:
        """Return the metrics of an evaluation by name."""
        return {}

    def describe(self) -> str:
        """Say how gradients were computed."""
        return "none (timing only)"

    def close(self) -> None:
        """Release what the computing holds, such as a pool of processes."""
