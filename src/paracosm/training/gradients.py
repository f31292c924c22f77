"""Where a job gets its gradients: asked for at once, computed when the first is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from paracosm.errors import InputError, unknown
from paracosm.models import DataSet, Model
from paracosm.training.gradient_methods import (
    Gradient,
    Method,
    OneByOne,
    PendingGradient,
    ProcessPool,
    Stepper,
    Vectorised,
    available_cores,
    inspect_model,
)
from paracosm.training.parameters import ParameterLayout

Mode = Literal["auto", "off", "vmap", "processes"]


class GradientSource:
    """Look-ahead batching of gradients.

    A worker's gradient depends only on the parameters that it read, so it may be computed at any
    time before it is needed. Requests wait until one of them is, and are then computed together
    where that is faster.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[int, PendingGradient] = {}
        self._requests = 0

    def request(self, parameters: Tensor, batch: npt.NDArray[np.int64]) -> PendingGradient:
        """Ask for a gradient at parameters that nobody changes in place afterwards."""
        pending = PendingGradient(self, self._requests, parameters, batch)
        self._waiting[self._requests] = pending
        self._requests += 1
        return pending

    def fulfil(self, request: PendingGradient) -> Gradient:
        """Compute the gradient of a request, and perhaps those of others that wait."""
        if request.number not in self._waiting:
            raise RuntimeError(f"gradient {request.number} was discarded before it was needed")
        computed, gradients = self._policy.compute(request, self._waiting)
        for pending, gradient in zip(computed, gradients, strict=True):
            pending.resolve(gradient)
            del self._waiting[pending.number]
        return request.result()

    def forget(self, request: PendingGradient) -> None:
        if self._waiting.pop(request.number, None) is None and request.computed:
            self._policy.wasted()

    def describe(self) -> str:
        return self._policy.describe()

    def close(self) -> None:
        self._waiting.clear()
        self._policy.close()


def make_gradients(
    model: Model,
    layout: ParameterLayout,
    data: DataSet,
    mode: Mode,
    workers_hint: int,  # how many gradients may wait at a time
    seed: int = 0,  # of random numbers that the model draws; each request has its own stream
    batch: int = 32,  # examples of a minibatch
) -> GradientSource:
    """Return the source of the gradients of a model on a data set's training examples.

    The model is taken over: its module stays in training mode, its parameters are those of the
    last gradient, and its buffers (running statistics) follow the gradients in the order in which
    these are computed, as on a parameter server that holds moving averages.

    Mode "off" computes each gradient alone, when it is needed; "vmap" and "processes" all that wait
    together; "auto" measures, and does what is fastest. As that depends on the machine, two runs
    agree to the bit only where the mode is named.
    """
    if mode not in get_args(Mode):
        raise unknown("look-ahead mode", mode, get_args(Mode))
    traits = inspect_model(model, layout, data, batch)
    processes = min(available_cores(), workers_hint)

    def pool() -> ProcessPool:
        return ProcessPool(model, layout, data, traits, seed, processes, workers_hint)

    if mode == "processes":
        return GradientSource(Policy(pool(), f"on {processes} processes"))
    if mode == "off" or (mode == "auto" and workers_hint == 1):
        why = "" if mode == "off" else " (a single worker)"
        one = OneByOne(Stepper(model, layout, traits, seed), data)
        return GradientSource(Policy(one, f"one by one{why}", together=False))
    vectorised = Vectorised(model, layout, data, traits)
    obstacle = traits.obstacle or vectorised.obstacle()
    if mode == "vmap":
        if obstacle:
            raise InputError(f'look-ahead mode "vmap": {obstacle}; use "auto"')
        return GradientSource(Policy(vectorised, "vmap"))
    one = OneByOne(Stepper(model, layout, traits, seed), data)
    make_pool = pool if processes > 1 else None
    return GradientSource(Automatic(one, vectorised, obstacle, make_pool))


Computed = tuple[list[PendingGradient], list[Gradient]]


class Policy:
    """Computes by one method what is needed, or all that wait (`together`)."""

    def __init__(self, method: Method, text: str, together: bool = True) -> None:
        self._method = method
        self._text = text
        self._together = together

    def compute(self, needed: PendingGradient, waiting: dict[int, PendingGradient]) -> Computed:
        """Compute the gradient `needed`, perhaps with others of those `waiting` (it is one)."""
        requests = list(waiting.values()) if self._together else [needed]
        return requests, self._method.compute(requests)

    def wasted(self) -> None:
        """Take note that a gradient was computed and not used."""

    def describe(self) -> str:
        return self._text

    def close(self) -> None:
        """Release what the methods hold."""
        if isinstance(self._method, ProcessPool):
            self._method.close()


_SAMPLES = 3  # measurements before a cost is believed
_MARGIN = 0.95  # of the cost one by one, below which computing together is worth it
_TRIAL = 16  # gradients in the first measured calls of vmap
_REFRESH = 64  # calls after which the cost one by one is measured again

# A pool takes seconds to start: it is tried once that is 5 % of what gradients have cost already.
_POOL_AFTER = 40.0  # seconds spent on gradients
_POOL_COST = 5e-3  # seconds for a gradient, below which sending it costs too much


class _Candidate:
    """A method and what it was seen to cost: seconds a gradient, the least of some samples.

    The cost depends on how many are computed together; it is kept by power of two.
    """

    def __init__(self, name: str, method: Method) -> None:
        self.name = name
        self.method = method
        self.gradients = 0
        self.seconds = 0.0
        self.samples: Counter[int] = Counter()
        self.cost: dict[int, float] = {}

    def compute(self, requests: list[PendingGradient]) -> Computed:
        begin = perf_counter()
        gradients = self.method.compute(requests)
        seconds = perf_counter() - begin
        number = len(requests)
        size = number.bit_length()
        self.gradients += number
        self.seconds += seconds
        self.samples[size] += 1
        self.cost[size] = min(self.cost.get(size, float("inf")), seconds / number)
        return requests, gradients

    def known(self, size: int) -> bool:
        return self.samples[size] >= _SAMPLES


class Automatic(Policy):
    """Computes what waits by the method that was measured to be the fastest.

    The first gradients are computed one by one; then small trials of `vmap` follow, which end it
    where it is no faster. Every gradient computed in a trial is used. From then on each size of
    the waiting set has its own costs, measured when it first occurs.
    """

    def __init__(
        self,
        one: OneByOne,
        vectorised: Vectorised,
        obstacle: str | None,
        pool: Callable[[], ProcessPool] | None,
    ) -> None:
        self._one = _Candidate("one by one", one)
        self._vmap = _Candidate("vmap", vectorised)
        self._obstacle = obstacle  # why vmap is not used
        self._trials = 0
        self._make_pool = pool
        self._pool: ProcessPool | None = None
        self._processes: _Candidate | None = None
        self._calls = 0
        self._wasted = 0

    def compute(self, needed: PendingGradient, waiting: dict[int, PendingGradient]) -> Computed:
        self._calls += 1
        number = len(waiting)
        if number == 1 or not self._one.known(1) or self._calls % _REFRESH == 0:
            return self._one.compute([needed])
        if self._obstacle is None and self._trials < _SAMPLES:
            return self._trial(needed, waiting)
        size = number.bit_length()
        candidates = [] if self._obstacle else [self._vmap]
        if self._pool_started():
            assert self._processes is not None
            candidates.append(self._processes)
        for candidate in candidates:
            if not candidate.known(size):
                return candidate.compute(list(waiting.values()))
        ahead = self._vmap.gradients + (self._processes.gradients if self._processes else 0)
        used = 1.0 - self._wasted / ahead if ahead > self._wasted else 1.0
        limit = _MARGIN * self._one.cost[1] * used
        best = min(candidates, key=lambda candidate: candidate.cost[size], default=None)
        if best is None or best.cost[size] > limit:
            return self._one.compute([needed])
        return best.compute(list(waiting.values()))

    def wasted(self) -> None:
        self._wasted += 1

    def describe(self) -> str:
        """Say which methods computed how much, and at what cost."""
        used = [c for c in (self._one, self._vmap, self._processes) if c and c.gradients]
        if not used:
            return "auto: nothing was computed"
        total = sum(candidate.gradients for candidate in used)
        used.sort(key=lambda candidate: -candidate.gradients)
        parts = [
            f"{c.name} {c.gradients / total:.0%} ({1e3 * c.seconds / c.gradients:.3g} ms each)"
            for c in used
        ]
        why = f"; no vmap: {self._obstacle}" if self._obstacle else ""
        return f"auto: {', '.join(parts)}{why}"

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _trial(self, needed: PendingGradient, waiting: dict[int, PendingGradient]) -> Computed:
        """Compute a few by `vmap`, and give it up where that is no faster even for these."""
        others = (request for request in waiting.values() if request is not needed)
        computed = self._vmap.compute([needed, *islice(others, _TRIAL - 1)])
        self._trials += 1
        number = len(computed[0])
        size = number.bit_length()
        costs_more = self._vmap.cost[size] > self._one.cost[1]
        if number == _TRIAL and self._vmap.known(size) and costs_more:
            self._obstacle = "it is no faster here"
        return computed

    def _pool_started(self) -> bool:
        """Whether there is a pool; start one when the cost of gradients is worth it."""
        if self._processes is not None:
            return True
        if self._make_pool is None or self._one.cost[1] < _POOL_COST:
            return False
        if self._one.seconds + self._vmap.seconds < _POOL_AFTER:
            return False
        if self._pool is None:
            self._pool = self._make_pool()
        if self._pool.warm_up():
            self._processes = _Candidate(f"{self._pool.processes} processes", self._pool)
        return self._processes is not None
