"""Local steps: several consecutive steps of an optimizer by one client, requested at once.

Their result depends only on the parameters that the client read, its minibatches and what is
its own. So all that wait may be computed together: their parameters are rows of one matrix, which
goes on step by step, by one product of stacks for each layer of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paracosm.arrays import Ints
from paracosm.training.numerics.buffers import SHARED, Buffers, State
from paracosm.training.numerics.gradient_methods import Method, StackedMethod, evenly
from paracosm.training.numerics.gradients import Policy
from paracosm.training.numerics.parameters import ParameterLayout
from paracosm.training.numerics.rules import Stepping
from paracosm.training.numerics.store import Recipe, Rule

Batches = Sequence[Ints]
"""The examples of each step."""


class Steps(NamedTuple):
    """What local steps came to."""

    loss: float  # the mean over their minibatches
    parameters: Tensor  # after the last, a flat vector
    lr: float  # the learning rates of all, added up


class LocalStepSource:
    """Look-ahead batching of local steps.

    Requests wait until the result of one is needed, and are then computed together where that is
    faster, which the model and their number decide. One by one, the values are to the bit those of
    gradients that are asked for in turn, each a step of the optimizer; together they agree to
    rounding.
    """

    def __init__(
        self, policy: Policy, layout: ParameterLayout, recipe: Recipe, buffers: Buffers
    ) -> None:
        self.buffers = buffers
        self._policy = policy
        self._layout = layout
        self._recipe = recipe
        self._waiting: dict[int, WaitingSteps] = {}
        self._numbers = 0
        self._kept: dict[Rule, WaitingSteps] = {}  # whose state the next ones continue from

    def request(
        self,
        parameters: Tensor,  # a flat vector that is not changed in place afterwards
        batches: Batches,
        rule: Rule,  # the optimizer's
        factors: tuple[float, ...],  # of the learning rate, one a step; none where it is the same
        keep_state: bool,  # whether other steps continue from the state of the rule
        mu: float,
        shift: Tensor | None,
        replica: int = SHARED,  # whose buffers they change
        lot: int | None = None,  # see `GradientSource.request`
    ) -> WaitingSteps:
        """Ask for a step of each of the batches; see `worker.TrainingWorker.local_steps`."""
        made = WaitingSteps(
            self,
            self._recipe,
            self._numbers,
            parameters,
            batches,
            rule,
            factors,
            mu,
            shift,
            replica,
            lot,
            parameters,
        )
        self._numbers += len(batches)
        if keep_state and isinstance(rule, Stepping):
            earlier = self._kept.get(rule)
            if earlier is not None:
                earlier.result()
            self._kept[rule] = made
        self._waiting[made.number] = made
        return made

    def fulfil(self, needed: WaitingSteps) -> None:
        """Compute a request, and perhaps others that wait."""
        if needed.number not in self._waiting:
            raise RuntimeError(f"steps {needed.number} were discarded before they were needed")
        requests, method = self._policy.choose(needed, self._waiting)
        steps = sum(request.missing for request in requests)
        begin = perf_counter()
        if len(requests) > 1 and isinstance(method, StackedMethod):
            for group in _alike(requests, method):
                if len(group) > 1:
                    self._together(method, group)
                else:
                    _in_turn(method, group)
        else:
            _in_turn(method, requests)
        self._policy.note(method, steps, perf_counter() - begin)
        for request in requests:
            self._finished(request)

    def advance(self, request: WaitingSteps) -> None:
        """Make one step of a request, whose others are made later."""
        _, method = self._policy.choose(request, {request.number: request})
        _step(method, [request])
        if not request.missing:
            self._finished(request)

    def forget(self, request: WaitingSteps) -> None:
        """Do not compute a request, unless other steps continue from its state."""
        if self._kept.get(request.rule) is not request:
            self._waiting.pop(request.number, None)

    def _finished(self, request: WaitingSteps) -> None:
        del self._waiting[request.number]
        self._kept.pop(request.rule, None)

    def _together(self, method: StackedMethod, group: list[WaitingSteps]) -> None:
        """Make the steps of all rows of one matrix; those with the most steps come first."""
        layout, mu, shift = self._layout, group[0].mu, None
        rows = torch.stack([request.parameters for request in group])
        start = rows
        if group[0].shift is not None:
            shift = torch.stack([request.shift for request in group if request.shift is not None])
        losses = torch.zeros(len(group), dtype=torch.float64)
        done = 0
        while group:
            count = len(group)
            until = len(group[-1].batches)
            rule = _joined([request.rule for request in group], rows)
            for number in range(done, until):
                direction = torch.empty(count, layout.size)
                minibatches = [request.batches[number] for request in group]
                losses += _gradients(method, layout, rows, minibatches, direction)
                self._recipe.clip_rows(direction)
                if mu:
                    direction.add_(rows - start[:count], alpha=mu)
                if shift is not None:
                    direction.add_(shift[:count])
                rows = rule(rows, direction, group[0].factor(number))
            if isinstance(rule, Stepping):
                rule.part([request.rule for request in group if isinstance(request.rule, Stepping)])
            going_on = [request for request in group if len(request.batches) > until]
            left = len(going_on)
            for request, row, total in zip(
                group[left:], rows[left:].unbind(), losses[left:].tolist(), strict=True
            ):
                request.finish(row, total)
            group, rows, losses, done = going_on, rows[:left], losses[:left], until


def _gradients(
    method: StackedMethod,
    layout: ParameterLayout,
    rows: Tensor,
    minibatches: list[Ints],  # one for each row, of whatever size
    out: Tensor,
) -> Tensor:
    """Return the losses of rows, and put their gradients into `out`: those of one size together."""
    sizes = np.array([len(minibatch) for minibatch in minibatches])
    if (sizes == sizes[0]).all():
        return method.stacked(layout.stacks(rows), np.stack(minibatches), layout.stacks(out))
    losses = torch.zeros(len(rows), dtype=torch.float64)
    for size in np.unique(sizes):
        tensor = torch.from_numpy(np.flatnonzero(sizes == size))
        batches = np.stack([minibatches[place] for place in tensor.tolist()])
        direction = torch.empty(len(tensor), layout.size)
        tensors = layout.stacks(rows.index_select(0, tensor))
        losses[tensor] += method.stacked(tensors, batches, layout.stacks(direction))
        out[tensor] = direction
    return losses


def _alike(requests: Sequence[WaitingSteps], method: StackedMethod) -> Iterator[list[WaitingSteps]]:
    """Divide requests into groups that share a matrix, of a size that one call takes."""
    ordered = sorted(requests, key=lambda each: (*_kind(each), -len(each.batches)))
    for (examples, *_), run in groupby(ordered, key=_kind):
        yield from evenly(list(run), method.most_together(examples))


def _kind(request: WaitingSteps) -> tuple[int, float, bool, int, int, tuple[float, ...]]:
    earlier = request.rule.steps if isinstance(request.rule, Stepping) else 0
    key = len(request.batches[0]), request.mu, request.shift is None, earlier, request.done
    return *key, request.factors


def _joined(rules: Sequence[Rule], rows: Tensor) -> Rule:
    stepping = [rule for rule in rules if isinstance(rule, Stepping)]
    return Stepping.together(stepping, rows) if stepping else rules[0]


def _in_turn(method: Method, requests: Sequence[WaitingSteps]) -> None:
    """Make all steps, the next of each by a gradient of its own."""
    while going_on := [request for request in requests if request.missing]:
        _step(method, going_on)


def _step(method: Method, requests: Sequence[WaitingSteps]) -> None:
    gradients = method.compute([request.next() for request in requests])
    for request, (loss, gradient, buffers) in zip(requests, gradients, strict=True):
        assert isinstance(gradient, Tensor), "parameters are flat vectors"
        request.step(loss, gradient, buffers)


class _Minibatch(NamedTuple):
    """The parameters and examples of one step's gradient."""

    number: int
    parameters: Tensor
    batch: Ints
    replica: int
    lot: int | None


@dataclass(eq=False, slots=True)
class WaitingSteps:
    """Local steps from `start`, of which `done` have been made."""

    source: LocalStepSource
    recipe: Recipe
    number: int  # of the first step's gradient, which picks its stream of random numbers
    start: Tensor
    batches: Batches
    rule: Rule
    factors: tuple[float, ...]
    mu: float
    shift: Tensor | None
    replica: int
    lot: int | None
    parameters: Tensor
    done: int = 0
    losses: float = 0.0
    ends: Steps | None = None
    buffers: State | None = None

    @property
    def missing(self) -> int:
        return 0 if self.ends is not None else len(self.batches) - self.done

    def result(self) -> Steps:
        """Return what the steps came to; the first call computes it."""
        if self.ends is None:
            self.source.fulfil(self)
        if self.buffers is not None:
            self.source.buffers.see(self.replica, self.buffers)
            self.buffers = None
        assert self.ends is not None
        return self.ends

    def advance(self) -> None:
        self.source.advance(self)

    def discard(self) -> None:
        self.source.forget(self)
        if self.buffers is not None:
            self.source.buffers.rewind(self.replica)

    def factor(self, step: int) -> float:
        """Return the factor of the learning rate at a step, from 0."""
        return self.factors[step] if self.factors else 1.0

    def next(self) -> _Minibatch:
        """Return the parameters and examples of the next step's gradient."""
        batch = self.batches[self.done]
        return _Minibatch(self.number + self.done, self.parameters, batch, self.replica, self.lot)

    def step(self, loss: float, gradient: Tensor, buffers: State | None) -> None:
        """Make the next step, by its gradient; `buffers` are those after one computed ahead."""
        self.buffers = buffers
        gradient = self.recipe.clipped(gradient)
        if self.mu:
            gradient = gradient.add(self.parameters - self.start, alpha=self.mu)
        if self.shift is not None:
            gradient = gradient.add(self.shift)
        self.parameters = self.rule(self.parameters, gradient, self.factor(self.done))
        self.losses += loss
        self.done += 1
        if self.done == len(self.batches):
            self.finish(self.parameters, self.losses)

    def finish(self, parameters: Tensor, losses: float) -> None:
        """Set the result of the steps, with the sum of losses; release all else."""
        count = len(self.batches)
        lr = self.recipe.lr * (sum(self.factors) if self.factors else count)
        self.ends = Steps(losses / count, parameters, lr)
        self.start = self.parameters = parameters
        self.shift = None
