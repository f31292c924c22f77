"""The automatic choice, on methods whose costs are known, by a clock that they advance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest
import torch

from paracosm.training.numerics.buffers import Buffers
from paracosm.training.numerics.gradient_methods import Gradient, PendingGradient
from paracosm.training.numerics.gradients import Automatic, GradientSource


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Costly:
    """A method that takes `cost(n)` seconds for n gradients."""

    def __init__(self, clock: Clock, cost: Callable[[int], float]) -> None:
        self.clock = clock
        self.cost = cost
        self.calls: list[int] = []

    @property
    def gradients(self) -> int:
        return sum(self.calls)

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        self.clock.now += self.cost(len(requests))
        self.calls.append(len(requests))
        return [Gradient(0.0, torch.zeros(1)) for _ in requests]


class Pool(Costly):
    """A pool of processes, and its workers."""

    name = "2 processes"
    closed = False
    polls = 0

    @property
    def workers(self) -> Pool:
        return self

    def warm_up(self) -> bool:
        self.polls += 1
        return self.polls > 10

    def close(self) -> None:
        self.closed = True


class Case:
    """A job in which a number of gradients are always in flight."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, one: float, is_small: bool, has_pool: bool
    ) -> None:
        self.clock = Clock()
        monkeypatch.setattr("paracosm.training.numerics.gradients.perf_counter", self.clock)
        self.one = Costly(self.clock, lambda number: one * number)
        self.vmap = Costly(self.clock, lambda number: 0.5 * one * number)
        self.pool = Pool(self.clock, lambda number: 0.6 * one * number)
        self.policy = Automatic(
            self.one,
            self.vmap if is_small else None,
            (lambda: self.pool) if has_pool else None,
        )
        self.source = GradientSource(self.policy, Buffers(torch.nn.Identity()))

    def run(self, flight: int, steps: int) -> None:
        """Take the oldest gradient and ask for another."""
        waiting = deque(self._ask() for _ in range(flight))
        for _ in range(steps):
            waiting.popleft().result()
            waiting.append(self._ask())

    def _ask(self) -> PendingGradient:
        return self.source.request(torch.zeros(1), np.zeros(1, dtype=np.int64))


def test_of_small_models_many_are_computed_together_and_few_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, one=1.0, is_small=True, has_pool=False)
    case.run(flight=15, steps=100)
    assert not case.vmap.calls
    case.run(flight=16, steps=160)
    assert case.vmap.calls[0] >= 16
    assert case.vmap.gradients >= 150
    assert case.policy.describe().startswith("auto: ")


@pytest.mark.parametrize("factor", [0.01, 1.0, 100.0])
def test_no_measured_time_decides_over_a_value(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool gives the same values, so it may start when it pays; vmap does not."""
    case = Case(monkeypatch, one=factor, is_small=True, has_pool=False)
    case.run(flight=20, steps=400)
    calls = case.vmap.calls
    same = Case(monkeypatch, one=1.0, is_small=True, has_pool=False)
    same.run(flight=20, steps=400)
    assert calls == same.vmap.calls


def test_cheap_gradients_start_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=0.004, is_small=False, has_pool=True)
    case.run(flight=16, steps=30_000)
    assert case.pool.polls == 0


def test_expensive_gradients_start_a_pool_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=0.1, is_small=False, has_pool=True)
    case.run(flight=16, steps=390)
    assert case.pool.polls == 0
    case.run(flight=16, steps=2000)
    assert case.pool.gradients > 1900
    assert "2 processes" in case.policy.describe()
    case.source.close()
    assert case.pool.closed


def test_before_anything_is_computed_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, one=1.0, is_small=False, has_pool=False)
    assert case.policy.describe() == "auto: nothing was computed"
