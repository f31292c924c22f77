"""The automatic choice, on methods whose costs are known, by a clock that they advance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest
import torch

from paracosm.training.gradient_methods import Gradient, PendingGradient
from paracosm.training.gradients import Automatic, GradientSource


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Costly:
    """A method that takes `cost(n)` seconds for n gradients."""

    def __init__(self, clock: Clock, cost: Callable[[int], float]) -> None:
        self.clock = clock
        self.cost = cost
        self.gradients = 0

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        self.clock.now += self.cost(len(requests))
        self.gradients += len(requests)
        return [Gradient(0.0, torch.zeros(1)) for _ in requests]


class Pool(Costly):
    processes = 2
    closed = False
    polls = 0

    def warm_up(self) -> bool:
        self.polls += 1
        return self.polls > 10

    def close(self) -> None:
        self.closed = True


class Case:
    """A job in which a number of gradients are always in flight."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        one: float,
        together: Callable[[int], float],
        pool: Callable[[int], float] | None = None,
    ) -> None:
        self.clock = Clock()
        monkeypatch.setattr("paracosm.training.gradients.perf_counter", self.clock)
        self.one = Costly(self.clock, lambda number: one * number)
        self.vmap = Costly(self.clock, together)
        self.pool = Pool(self.clock, pool or (lambda number: 0.0))
        self.policy = Automatic(self.one, self.vmap, None, (lambda: self.pool) if pool else None)
        self.source = GradientSource(self.policy)

    def run(self, flight: int, steps: int, drop: bool = False) -> None:
        """Take the oldest gradient and ask for another; drop every second where it is told."""
        waiting = deque(self._ask() for _ in range(flight))
        for step in range(steps):
            request = waiting.popleft()
            if drop and step % 2:
                request.discard()
            else:
                request.result()
            waiting.append(self._ask())

    def _ask(self) -> PendingGradient:
        return self.source.request(torch.zeros(1), np.zeros(1, dtype=np.int64))


def test_cheaper_together_is_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=1.0, together=lambda n: 4.0 + 0.1 * n)
    case.run(flight=64, steps=3000)
    # A flight of 64 costs 10.4 together, and one in 64 calls is alone.
    assert case.clock.now < 3000 * (10.4 / 64) * 1.2
    assert case.policy.describe().startswith("auto: vmap 100% (165 ms each)")


@pytest.mark.parametrize("factor", [1.0, 1.3, 3.0, 10.0])
@pytest.mark.parametrize("flight", [4, 16, 64])
def test_dearer_together_costs_at_most_5_percent(
    factor: float, flight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(monkeypatch, one=1.0, together=lambda n: factor * n)
    case.run(flight, steps=10_000)
    assert case.clock.now < 1.05 * 10_000 + flight
    assert case.one.gradients > 9700


def test_a_few_in_flight_are_computed_alone_and_many_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, one=1.0, together=lambda n: 5.0 + 0.1 * n)
    case.run(flight=4, steps=500)
    few = case.vmap.gradients
    assert few < 30
    case.run(flight=60, steps=500)
    assert case.vmap.gradients > few + 400


def test_gradients_that_are_often_wasted_are_not_computed_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of them are dropped: what costs 0.7 of one by one costs 1.4 of the useful ones."""
    case = Case(monkeypatch, one=1.0, together=lambda n: 0.7 * n)
    case.run(flight=64, steps=4000, drop=True)
    assert case.one.gradients > case.vmap.gradients
    assert case.clock.now < 1.1 * 2000


def test_cheap_gradients_start_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=0.004, together=lambda n: 0.005 * n, pool=lambda n: 0.001 * n)
    case.run(flight=16, steps=30_000)
    assert case.pool.polls == 0


def test_expensive_gradients_start_a_pool_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=0.1, together=lambda n: 0.12 * n, pool=lambda n: 0.06 * n)
    case.run(flight=16, steps=300)
    assert case.pool.polls == 0
    case.run(flight=16, steps=2000)
    assert case.pool.gradients > 1800
    assert "2 processes" in case.policy.describe()
    case.source.close()
    assert case.pool.closed


def test_a_pool_that_is_slower_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=0.1, together=lambda n: 0.12 * n, pool=lambda n: 0.15 * n)
    case.run(flight=16, steps=5000)
    assert 0 < case.pool.gradients <= 60


def test_before_anything_is_computed_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=1.0, together=lambda n: 1.0)
    assert case.policy.describe() == "auto: nothing was computed"
