"""The measured answer to the question what to compute when a gradient is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from time import perf_counter

from paracosm.training.gradients.one_by_one import OneByOne
from paracosm.training.gradients.pending import Gradient, Method, PendingGradient
from paracosm.training.gradients.processes import ProcessPool
from paracosm.training.gradients.vectorised import Vectorised

__all__ = ["Automatic"]

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

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        """Compute, and measure."""
        begin = perf_counter()
        gradients = self.method.compute(requests)
        seconds = perf_counter() - begin
        number = len(requests)
        size = number.bit_length()
        self.gradients += number
        self.seconds += seconds
        self.samples[size] += 1
        self.cost[size] = min(self.cost.get(size, float("inf")), seconds / number)
        return gradients

    def known(self, size: int) -> bool:
        return self.samples[size] >= _SAMPLES


class Automatic:
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

    def compute(
        self, needed: PendingGradient, waiting: dict[int, PendingGradient]
    ) -> tuple[list[PendingGradient], list[Gradient]]:
        self._calls += 1
        number = len(waiting)
        if number == 1 or not self._one.known(1) or self._calls % _REFRESH == 0:
            return self._alone(needed)
        if self._obstacle is None and self._trials < _SAMPLES:
            return self._trial(needed, waiting)
        size = number.bit_length()
        candidates = [] if self._obstacle else [self._vmap]
        if self._pool_started():
            assert self._processes is not None
            candidates.append(self._processes)
        for candidate in candidates:
            if not candidate.known(size):
                return self._all(candidate, waiting)
        limit = _MARGIN * self._one.cost[1] * self._useful()
        best = min(candidates, key=lambda candidate: candidate.cost[size], default=None)
        if best is None or best.cost[size] > limit:
            return self._alone(needed)
        return self._all(best, waiting)

    def wasted(self) -> None:
        """Take note that a gradient was computed and not used."""
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
        """End the processes, if there are any."""
        if self._pool is not None:
            self._pool.close()

    def _alone(self, needed: PendingGradient) -> tuple[list[PendingGradient], list[Gradient]]:
        requests = [needed]
        return requests, self._one.compute(requests)

    def _all(
        self, candidate: _Candidate, waiting: dict[int, PendingGradient]
    ) -> tuple[list[PendingGradient], list[Gradient]]:
        requests = list(waiting.values())
        return requests, candidate.compute(requests)

    def _trial(
        self, needed: PendingGradient, waiting: dict[int, PendingGradient]
    ) -> tuple[list[PendingGradient], list[Gradient]]:
        """Compute a few by `vmap`, and give it up where that is no faster even for these."""
        others = (request for request in waiting.values() if request is not needed)
        requests = [needed, *islice(others, _TRIAL - 1)]
        gradients = self._vmap.compute(requests)
        self._trials += 1
        size = len(requests).bit_length()
        if len(requests) == _TRIAL and self._vmap.known(size):
            each, alone = self._vmap.cost[size], self._one.cost[1]
            if each > alone:
                self._obstacle = "it is no faster here"
        return requests, gradients

    def _useful(self) -> float:
        """Return the share of gradients computed ahead that were used."""
        ahead = self._vmap.gradients + (self._processes.gradients if self._processes else 0)
        return 1.0 - self._wasted / ahead if ahead > self._wasted else 1.0

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
