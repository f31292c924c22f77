"""Stores of parameters, workers' contributions to updates, and the interface of numerics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, Protocol

import numpy as np

from paracosm.errors import InputError
from paracosm.models.shards import pass_sizes
from paracosm.results import Chance
from paracosm.training.by_client import ClientScore
from paracosm.training.learning_rate import Factor
from paracosm.training.privacy import Accountant, ClientNoise, Draw

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
        """Return the factor, at most 1, of so many times the weighted mean of whole gradients."""
        # The parts of one gradient are requested one after the other.
        known, weighted, remembered = self._newest
        is_same = len(known) == len(gradients) and weighted == list(weights)
        if is_same and all(a is b for a, b in zip(known, gradients, strict=True)):
            return remembered
        norm = times * _norm_of_mean(gradients, weights)
        # Written so that a norm that is not a number shortens nothing, and shows in the loss.
        remembered = self._limit / (norm + _EPSILON) if norm + _EPSILON > self._limit else 1.0
        self._newest = (list(gradients), list(weights), remembered)
        return remembered

    def clip_rows(self, gradients: Any) -> None:
        """Shorten the rows of a matrix, each a gradient of its own, in place."""
        norms = gradients.norm(dim=1, keepdim=True)
        gradients.mul_((self._limit / (norms + _EPSILON)).clamp(max=1.0))


def _norm_of_mean(gradients: Sequence[Any], weights: Sequence[float]) -> float:
    import torch

    forms = [gradient if isinstance(gradient, tuple) else (gradient,) for gradient in gradients]
    total = sum(weights)
    means = forms[0]
    if len(forms) > 1:
        means = tuple(
            sum(w * tensor for w, tensor in zip(weights, same, strict=True)) / total
            for same in zip(*forms, strict=True)
        )
    norms = torch.stack([torch.linalg.vector_norm(mean) for mean in means])
    return float(torch.linalg.vector_norm(norms))


Part = slice | int
"""What one server or tensor has of the parameters: parameters[part]."""

Rule = Callable[[Any, Any, float], Any]
"""From parameters, direction and relative step to new parameters; see `rules.update_rule`.

A deep copy of a rule has a state of its own.
"""

Record = Callable[["Store", Sequence["Contribution"], Sequence[int]], None]
"""Told of every update of a store and the staleness of its contributions, after it was made."""


Direction = Callable[[Any, Any], Any]
"""From a gradient and what has moved since it was read to the vector to step against.

A deep copy of one has a state of its own.
"""

Saved = tuple[Any, int, Rule, Direction]


@dataclass(frozen=True)
class Recipe:
    """Settings of every update, common to all algorithms."""

    lr: float = float("nan")  # the learning rate that the factor is of
    lr_factor: Factor = lambda t: 1.0  # from the number of updates before
    clipping: Clipping | None = None
    noise: ClientNoise | None = None  # that hides whose changes a mean is of

    def shrink(self, gradient: Any) -> float:
        """Return the factor by which one whole gradient is clipped."""
        return 1.0 if self.clipping is None else self.clipping.factor([gradient], [1.0])

    def clip_rows(self, gradients: Any) -> None:
        """Clip gradients that are the rows of a matrix, in place."""
        if self.clipping is not None:
            self.clipping.clip_rows(gradients)

    def clipped(self, gradient: Any) -> Any:
        """Return one flat gradient, clipped."""
        factor = self.shrink(gradient)
        return gradient if factor == 1 else factor * gradient


class Weighting(Protocol):
    """An algorithm's weighting of contributions; see `algorithms.Algorithm`."""

    @property
    def compensates(self) -> bool: ...

    @property
    def sums(self) -> bool: ...

    def weight(self, staleness: int, workers: int) -> float: ...

    def compensation(self) -> Direction: ...


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
        recipe: Recipe,
        updates: Callable[[], int] | None = None,  # of the run so far; of this store by default
        # What is stepped against, from a mean and the updates before
        aggregate: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self.parameters = parameters
        self.weight = 1.0  # of a push-sum
        self.version = 0
        self.rule = rule
        self._record = record
        self._real = real
        self._weighting = weighting
        self._compensates = weighting.compensates
        self._sums = weighting.sums
        self._direction = weighting.compensation()
        self._workers = workers
        self._recipe = recipe
        self._updates = updates or (lambda: self.version)
        self._aggregate = aggregate
        # Whether one contribution is by itself what is stepped against, but for its direction.
        is_clipped = recipe.noise is not None or recipe.clipping is not None
        self._is_plain = not (self._compensates or self._sums or is_clipped or aggregate)

    @property
    def hides_clients(self) -> bool:
        """Whether `apply` clips changes and adds noise."""
        return self._recipe.noise is not None

    @property
    def parameters(self) -> Any:
        """The newest snapshot.

        Raises:
            InputError: an algorithm of the user's own has changed it in place.
        """
        if _writes(self._parameters) != self._written:
            raise InputError(
                "the algorithm changed a server's parameters in place, which workers still compute "
                "gradients at: give `replace` a new vector"
            )
        return self._parameters

    @parameters.setter
    def parameters(self, parameters: Any) -> None:
        self._parameters = parameters
        self._written = _writes(parameters)

    @property
    def weighted(self) -> Any:
        """The parameters, divided by their weight."""
        return self.parameters if self.weight == 1 else self.parameters / self.weight

    def apply(self, contributions: Sequence[Contribution]) -> None:
        """Update by the mean of at least one contribution: theta <- rule(theta, mean_i w_i d_i).

        Weights w and directions d are the algorithm's, the mean is one by the contributions' own
        weights, or else their sum, may be clipped, and the rule is the optimizer's, or the
        algorithm's own for pseudo-gradients.
        """
        if not self._real:
            self.replace(contributions, self.parameters)
            return
        shares = [contribution.gradient.weight for contribution in contributions]
        weights = [
            share * self._weight(self.version - contribution.read_version)
            for share, contribution in zip(shares, contributions, strict=True)
        ]
        if self._is_plain and len(contributions) == 1:
            mean = self._direction(contributions[0].value, None)
        else:
            mean = self._mean_direction(contributions, weights)
        before = self._parameters  # that nobody has changed it, `replace` sees to
        _check_like("direction", mean, before)  # PyTorch would broadcast it
        # The mean scale shortens the step, not the direction: Adam would undo the latter.
        relative = sum(weights) / sum(shares) * self._recipe.lr_factor(self._updates())
        self.replace(contributions, self.rule(before, mean, relative))

    def _mean_direction(self, contributions: Sequence[Contribution], weights: list[float]) -> Any:
        """Return what is stepped against."""
        values = self._clipped(contributions, weights)
        moved: list[Any] = [None] * len(values)
        if self._compensates:
            moved = [
                self.parameters - contribution.read_parameters for contribution in contributions
            ]
        if self._recipe.noise is None:
            mean = _mean([*map(self._direction, values, moved)], weights)
        else:  # whatever the algorithm makes of a mean that is hidden gives nothing away
            private = self._recipe.noise.add(_mean(values, weights), weights)
            mean = self._direction(private, _mean(moved, weights) if self._compensates else None)
        if self._sums:
            mean = len(values) * mean
        if self._aggregate is not None:
            mean = self._aggregate(mean, self.version)
        return mean

    def _weight(self, staleness: int) -> float:
        weight: Any = self._weighting.weight(staleness, self._workers)
        is_number = type(weight) is float or isinstance(weight, Real)  # the latter takes long
        if not is_number or not 0 < weight < inf:
            raise InputError(
                f"the algorithm's weight of a gradient of staleness {staleness} must be a number "
                f"above 0, not {weight!r}"
            )
        return float(weight)

    def _clipped(
        self, contributions: Sequence[Contribution], weights: Sequence[float]
    ) -> list[Any]:
        """Return the value of each contribution, clipped: as a part of their mean, or by itself."""
        values, recipe = [contribution.value for contribution in contributions], self._recipe
        if recipe.noise is not None:
            factors = [recipe.noise.factor(contribution.whole) for contribution in contributions]
        elif recipe.clipping is not None:
            times = len(values) if self._sums else 1
            whole = [contribution.whole for contribution in contributions]
            factors = [recipe.clipping.factor(whole, weights, times)] * len(values)
        else:
            return values
        return [
            value if factor == 1 else factor * value
            for value, factor in zip(values, factors, strict=True)
        ]

    def replace(self, contributions: Sequence[Contribution], parameters: Any) -> None:
        """Update to `parameters`, which came of the contributions."""
        if self._real:
            _check_like("update to parameters", parameters, self.parameters)
        version = self.version
        staleness = [version - contribution.read_version for contribution in contributions]
        self.parameters = parameters
        self.version = version + 1
        self._record(self, contributions, staleness)

    def save(self) -> Saved:
        """Return what `restore` needs to put parameters, version and optimizer back."""
        return self.parameters, self.version, deepcopy(self.rule), deepcopy(self._direction)

    def restore(self, saved: Saved) -> None:
        self.parameters, self.version, rule, direction = saved
        self.rule, self._direction = deepcopy(rule), deepcopy(direction)

    def replace_by_mean(self, contributions: Sequence[Contribution]) -> None:
        self.replace(contributions, sum(c.value for c in contributions) / len(contributions))

    def subtract_mean(self, contributions: Sequence[Contribution]) -> None:
        """Do the same where each brings what it has taken off the parameters, as it was sent."""
        mean = sum(c.value for c in contributions) / len(contributions)
        if self._aggregate is not None and self._real:
            mean = self._aggregate(mean, self.version)
        self.replace(contributions, self.parameters - mean)


def _mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    if len(values) == 1:
        return values[0]
    return sum(w * d for w, d in zip(weights, values, strict=True)) / sum(weights)


def _writes(parameters: Any) -> int:
    """Return how often a tensor was written to in place, by PyTorch's count."""
    try:
        return int(parameters._version)
    except (AttributeError, RuntimeError):  # not a tensor; one of inference mode, without a count
        return 0


def _check_like(what: str, values: Any, parameters: Any) -> None:
    """Raise InputError unless an algorithm's `values` have the form of the parameters."""
    shape = getattr(values, "shape", None)
    if shape != parameters.shape:
        kind = type(values).__name__ if shape is None else f"values of shape {tuple(shape)}"
        raise InputError(
            f"the algorithm's {what} must be a vector of shape {tuple(parameters.shape)}, "
            f"not {kind}"
        )


class Pending(Protocol):
    """A gradient that is computed when its result is needed, or before."""

    def result(self) -> Any:
        """Return an object with `loss` (a float) and `gradient` (a flat vector)."""

    def discard(self) -> None:
        """Declare that the result is not needed."""


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The requested local steps; see `worker.TrainingWorker.local_steps`."""

    count: int
    epochs: int = 0
    keep_state: bool = True
    mu: float = 0.0
    shift: Any = None
    updates: float = 0.0  # of the run, at which the first is made
    apart: float = 0.0  # of an update, by which each is later than the one before


class PendingSteps(Protocol):
    """Local steps of a client, made at the latest when their result is requested."""

    def result(self) -> Any:
        """Return an object with `loss` (a float, the mean), `parameters` (after the steps) and
        `lr` (the learning rates of the steps, added up).
        """

    def advance(self) -> None:
        """Make one of the steps now."""

    def discard(self) -> None:
        """Declare that the result is not needed."""


class Deferred:
    """A vector that is computed on first use."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The flat vector."""
        raise NotImplementedError


@dataclass(eq=False, slots=True)
class Gradient(Deferred):
    """A minibatch gradient of one worker, computed on first use."""

    worker: str  # the name of the worker that made it
    client: int  # whose minibatch it is of
    parameters: Any  # that it is a gradient at
    versions: list[int]  # how often each server's part had been updated when it was read
    examples: int  # how many it was computed from
    pending: Pending | PendingSteps
    weight: float = 1.0  # in a mean with others
    draws: Sequence[Draw] = ()  # the minibatches that it is of
    is_partial: bool = False  # whether its client did only a part of its local steps

    @property
    def value(self) -> Any:
        return self.pending.result().gradient

    @property
    def minibatches(self) -> int:
        """How many it is of."""
        return sum(sum(draw.sizes.values()) for draw in self.draws)

    @property
    def loss(self) -> float:
        loss: float = self.pending.result().loss
        return loss


@dataclass(eq=False, slots=True)
class PseudoGradient(Gradient):
    """What local steps of one worker took off the parameters that it read: theta - theta_i.

    Reddi et al., "Adaptive Federated Optimization", 2021, section 2: to an optimizer it is what a
    gradient is.
    """

    @property
    def value(self) -> Any:
        return self.parameters - self.pending.result().parameters

    def result(self) -> Any:
        """Return what the steps came to; see `PendingSteps`."""
        return self.pending.result()


@dataclass(eq=False, slots=True)
class Contribution:
    """One worker's contribution to one update of one partition of the parameters.

    It refers to the newest gradient that the worker computed. Its payload is that gradient or, in
    algorithms that exchange parameters or their changes, a vector, or what was sent of
    either; beside it a second vector may have been sent.
    """

    gradient: Gradient
    payload: Any
    part: Part | None
    read_version: int
    target: Store
    second: Any = None

    @property
    def worker(self) -> str:
        return self.gradient.worker

    @property
    def client(self) -> int:
        return self.gradient.client

    @property
    def staleness(self) -> int:
        """The number of updates of the target since the worker read it."""
        return self.target.version - self.read_version

    @property
    def whole(self) -> Any:
        """The payload with the parts of all targets."""
        return _vector(self.payload)

    @property
    def value(self) -> Any:
        """The payload's part that belongs to the target, a flat vector."""
        whole = _vector(self.payload)
        return whole if self.part is None else whole[self.part]

    @property
    def extra(self) -> Any:
        """The same of the vector that was sent with the payload; None if there was none."""
        if self.second is None:
            return None
        whole = _vector(self.second)
        return whole if self.part is None else whole[self.part]

    @property
    def read_parameters(self) -> Any:
        """The target's parameters as the gradient was computed from them."""
        whole = self.gradient.parameters
        return whole if self.part is None else whole[self.part]


def _vector(payload: Any) -> Any:
    return payload.value if isinstance(payload, Deferred) else payload


class Numerics:
    """The computing side of a run.

    This one computes nothing: its vectors have length zero, so that algorithms go through their
    motions at no cost.
    """

    real = False
    clients = 0  # whose examples are computed on
    recipe = Recipe()
    chance: Chance | None = None  # the quality of guessing
    loss = float("nan")
    lr = 1.0
    gradient: Any = np.zeros(0, dtype=np.float32)
    parameters = gradient

    def __init__(
        self,
        sizes: tuple[float, ...],
        shapes: Sequence[Sequence[tuple[int, ...]]] = (),
        batch: int = 1,  # examples of a minibatch
        batches: Sequence[int] | None = None,  # of each client, where they differ
    ) -> None:
        # Of the parameters, by server: slices of the vector; places where they are tuples
        self.parts: tuple[Part, ...] = (slice(0, 0),) * len(sizes)
        self.sizes = sizes  # bytes of each part, as a message
        self.shapes = shapes  # of the tensors of each part; none where no model was needed
        self._batch = batch
        self._batches = batches

    def initial(self) -> Any:
        """Return the initial parameters."""
        return self.gradient

    def join(self, parts: Sequence[Any]) -> Any:
        """Return the parameters that consist of the parts."""
        return self.gradient

    def flat(self, parameters: Any) -> Any:
        """Return parameters that `join` made as one flat vector."""
        return parameters

    def request(self, client: int, parameters: Any) -> Pending:
        """Ask for a gradient of the client's next minibatch at `parameters`."""
        return self

    def request_steps(self, client: int, parameters: Any, steps: LocalSteps) -> PendingSteps:
        """Ask for local steps of the client from `parameters`."""
        return self

    def forget(self, client: int) -> None:
        """Forget the state that a client's local steps would continue from."""

    def optimizer_state(self, client: int, name: str) -> Any:
        """Return what the optimizer of a client's local steps keeps by a name."""
        return self.gradient

    def replace_optimizer_state(self, client: int, name: str, values: Any) -> None:
        """Let a client's local steps continue from another state."""

    def outer_recipe(self, part: int) -> Recipe:
        """Return what is done to pseudo-gradients of a part; local steps followed the recipe."""
        return Recipe()

    @property
    def adaptive_clip(self) -> float | None:
        """The norm that changes of clients are clipped to now; None where it does not adapt."""
        return None

    def accountant(self) -> Accountant | None:
        """Return what counts the privacy that is lost; None where nothing is hidden."""
        return None

    def examples_of(self, client: int) -> int:
        """Return how many examples a client draws its minibatches from."""
        return 1

    @property
    def nominal_batch(self) -> float:
        """The examples that the configured duration of a gradient is of."""
        return self._batch

    def batch_of(self, client: int) -> int:
        """Return how many examples a whole minibatch of a client has."""
        return self._batch if self._batches is None else self._batches[client]

    @property
    def has_short_minibatches(self) -> bool:
        """Whether a whole minibatch of some client is its shard, smaller than configured."""
        return False

    def weight_of(self, client: int) -> float:
        """Return the weight of a client's gradient in a mean with others."""
        return self.batch_of(client) / self.nominal_batch

    def step_sizes(self, client: int, count: int, epochs: int) -> list[int]:
        """Return the examples of `count` minibatches of a client, or of passes over its shard."""
        size = self.batch_of(client)
        return epochs * pass_sizes(self.examples_of(client), size) if epochs else count * [size]

    def result(self) -> Any:
        return self

    def advance(self) -> None:
        pass

    def discard(self) -> None:
        pass

    def rule(self) -> Rule:
        """Return an update rule with a state of its own."""
        return lambda parameters, direction, step: parameters

    def evaluate(self, parameters: Any) -> dict[str, float]:
        """Return the metrics of an evaluation by name."""
        return {}

    def evaluate_clients(self, parameters: Any) -> list[ClientScore]:
        """Return how well clients are served that have examples of their own: of all or of some."""
        return []

    @property
    def has_own_tests(self) -> bool:
        """Whether clients have test examples of their own."""
        return False

    def describe(self) -> str:
        """Describe how gradients were computed."""
        return "none (timing only)"

    def close(self) -> None:
        """Release what the computing holds, such as a pool of processes."""
