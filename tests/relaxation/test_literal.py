"""The compiled event loop against Algorithms 2 and 5, transcribed line by line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_algorithms import (
    LiteralRun,
    algorithm_2,
    algorithm_2_read_at_start,
    algorithm_5,
)
from numpy.typing import NDArray
from scipy.sparse import csr_array

from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.partition import pattern_from_blocks
from paracosm.relaxation.problems import load_problem
from paracosm.rng import stream_keys
from paracosm.timing import parse_distribution
from paracosm.timing.compiled import uniform

SCALE = 100.0
TIMES, CHOICES = 1, 2  # what the simulator's streams of random numbers are for
DISTRIBUTIONS = (
    "30ms",
    "uniform(0.01, 0.04)",  # 1 to 4 ticks: ties all the time
    "uniform(0.05, 0.9)",
    "normal(0.1, 0.02)",
    "normal(0.1, 0.01)",
    "lognormal(0.3, 0.5)",
)


@dataclass(frozen=True)
class Case:
    A: csr_array
    b: NDArray[np.float64]
    x0: NDArray[np.float64]
    blocks: list[NDArray[np.int64]]
    processors: int
    choice: str
    times: tuple[str, ...]
    read: str
    seed: int

    @cached_property
    def keys(self) -> dict[int, NDArray[np.uint64]]:
        return {use: stream_keys(self.seed, use, self.processors) for use in (TIMES, CHOICES)}

    def duration(self, processor: int, number: int) -> int:
        drawn = uniform(self.keys[TIMES][processor], number)
        time = parse_distribution(self.times[processor]).from_uniform(np.array([drawn]))
        return round(float(time[0]) * SCALE)

    def choose(self, processor: int, number: int) -> int:
        if self.choice == "random":
            return int(uniform(self.keys[CHOICES][processor], number) * len(self.blocks))
        mine = range(processor, len(self.blocks), self.processors)
        return mine[number % len(mine)]

    def literally(self) -> LiteralRun:
        given = (self.A, self.b, self.x0, self.blocks, self.duration)
        if self.read == "start":
            return algorithm_2_read_at_start(
                *given, processors=self.processors, choose=self.choose, most=1e5
            )
        return algorithm_2(
            *given,
            processors=self.processors,
            choose=self.choose,
            read="gauss-seidel" if self.read == "gauss-seidel" else "completion",
            most=1e5,
        )

    def simulated(self) -> RelaxationResult:
        return relax(
            self.A,
            self.b,
            self.x0,
            pattern=pattern_from_blocks(
                self.blocks,
                self.b.size,
                processors=self.processors,
                choice=self.choice,  # type: ignore[arg-type]
            ),
            time=list(self.times),
            read=self.read,
            scale_factor=SCALE,
            timeline=200_000,
            seed=self.seed,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    A = np.where(rng.random((n, n)) < draw(st.sampled_from([0.1, 0.3, 1.0])), 1.0, 0.0)
    A *= rng.normal(size=(n, n))
    np.fill_diagonal(A, 0)
    sign = rng.choice([-1, 1], n)
    np.fill_diagonal(A, sign * (0.1 + abs(A).sum(axis=1) * rng.uniform(1.05, 2, n)))
    blocks = draw(st.integers(1, n))
    choice = draw(st.sampled_from(["fixed", "fixed", "cyclic", "random"]))
    processors = blocks if choice == "fixed" else draw(st.integers(1, blocks))
    # In any order; sometimes overlapping.
    dealt = np.array_split(rng.permutation(n), blocks)
    if draw(st.booleans()):
        dealt = [np.union1d(rows, rng.integers(0, n, 2)) for rows in dealt]
    return Case(
        csr_array(A),
        rng.normal(size=n),
        rng.normal(size=n),
        dealt,
        processors,
        choice,
        tuple(draw(st.sampled_from(DISTRIBUTIONS)) for _ in range(processors)),
        draw(st.sampled_from(["start", "completion", "gauss-seidel"])),
        draw(st.integers(0, 1000)),
    )


def updates_of(result: RelaxationResult) -> list[list[int]]:
    """(processor, tick) of the updates that are complete, in the order of Algorithm 2."""
    ticks = np.rint(result.spans.end * SCALE).astype(int)
    done = ticks <= round(result.virtual_time * SCALE)
    order = np.lexsort((result.spans.processor[done], ticks[done]))
    return np.column_stack([result.spans.processor[done], ticks[done]])[order].tolist()


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_event_loop_is_algorithm_2_update_for_update(case: Case) -> None:
    expected, found = case.literally(), case.simulated()
    assert expected.converged
    assert found.status == "converged"
    assert round(found.virtual_time * SCALE) == expected.ticks
    assert updates_of(found) == expected.updates.tolist()
    assert found.updates.sum() == len(expected.updates)
    assert found.relaxations == expected.relaxations
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.residual, expected.residual, rtol=1e-6, atol=1e-13)


def laplacian_case(seed: int, read: str, time: str = "normal(0.1, 0.01)") -> Case:
    problem = load_problem("laplace2d:10", seed=seed)
    blocks = list(np.arange(100).reshape(10, 10))
    return Case(problem.A, problem.b, problem.x0, blocks, 10, "fixed", (time,) * 10, read, seed)


@pytest.mark.parametrize("read", ["start", "completion", "gauss-seidel"])
def test_the_same_on_the_papers_grid(read: str) -> None:
    case = laplacian_case(3, read)
    expected, found = case.literally(), case.simulated()
    assert round(found.virtual_time * SCALE) == expected.ticks
    assert updates_of(found) == expected.updates.tolist()
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-9)


def test_literal_updates_by_hand() -> None:
    """x1 = (1 + x2) / 2 and x2 = x1 / 2, both due at t = 1, then one at 2, the other at 3."""
    A = csr_array([[2.0, -1.0], [-1.0, 2.0]])
    b, x0 = np.array([1.0, 0.0]), np.zeros(2)
    ticks = {(0, 0): 1, (1, 0): 1, (0, 1): 1, (1, 1): 2}
    run = {"blocks": [np.array([0]), np.array([1])], "duration": lambda *who: ticks.get(who, 9)}
    at_completion = algorithm_2(A, b, x0, **run, most=3)
    # t=1: x1 = 1/2, then x2 = 1/4; t=2: x1 = 5/8; t=3: x2 = 5/16.
    assert at_completion.x.tolist() == [5 / 8, 5 / 16]
    assert at_completion.updates.tolist() == [[0, 1], [1, 1], [0, 2], [1, 3]]
    at_start = algorithm_2_read_at_start(A, b, x0, **run, most=3)
    # t=1: (1/2, 0); t=2: x1 = (1 + 0)/2; t=3: x2, which read (1/2, 0) at t=1, is 1/4.
    assert at_start.x.tolist() == [1 / 2, 1 / 4]
    assert at_start.updates.tolist() == at_completion.updates.tolist()
    assert (at_start.relaxations, at_start.converged, at_start.ticks) == (4, False, 3)
    whole = algorithm_2(A, b, x0, [np.array([0, 1])], lambda *_: 1, most=1)
    in_order = algorithm_2(A, b, x0, [np.array([0, 1])], lambda *_: 1, read="gauss-seidel", most=1)
    assert whole.x.tolist() == [1 / 2, 0]
    assert in_order.x.tolist() == [1 / 2, 1 / 4]


def struck(case: Case, t: int, alpha: float, omega: int, **more: bool) -> LiteralRun:
    def inject(now: int, x: NDArray[np.float64]) -> None:
        if now == t:
            np.negative(x, out=x)

    given = (case.A, case.b, case.x0, case.blocks, case.duration)
    return algorithm_5(*given, alpha=alpha, omega=omega, inject=inject, most=1e5, **more)


@pytest.mark.parametrize(
    ("t", "alpha", "omega"),
    # Between two updates; at an update and a checkpoint; before the first checkpoint; at t = 1; and
    # alpha so small that rollbacks without a fault are many.
    [(505, 2.0, 30), (600, 10.0, 20), (45, 2.0, 50), (1, 1.5, 7), (900, 1.02, 100)],
)
def test_the_event_loop_is_algorithm_5(t: int, alpha: float, omega: int) -> None:
    """Flipping all signs of x needs no random numbers, so both see the same fault."""
    case = laplacian_case(t, "completion")
    expected = struck(case, t, alpha, omega)
    found = relax(
        case.A,
        case.b,
        case.x0,
        pattern=case.blocks,
        time=list(case.times),
        read="completion",
        scale_factor=SCALE,
        fault=f"signflip at {t / SCALE}s",
        checkpoint=f"alpha={alpha}, omega={omega / SCALE}s",
        timeline=200_000,
        seed=case.seed,
    )
    assert expected.converged
    assert expected.rollbacks >= (t > 1)  # at t = 1, x is still 0
    assert found.rollbacks == expected.rollbacks
    assert round(found.virtual_time * SCALE) == expected.ticks
    assert updates_of(found) == expected.updates.tolist()
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-9)


def test_algorithm_5_as_printed_never_rolls_back() -> None:
    case = laplacian_case(0, "completion")
    printed = struck(case, 600, 2.0, 20, as_printed=True)
    assert printed.rollbacks == 0
    plain = struck(case, 600, 1e9, 20)
    assert printed.ticks == plain.ticks
    repaired = struck(case, 600, 2.0, 20)
    assert repaired.rollbacks == 1
    assert repaired.ticks < printed.ticks


def test_without_ticks_the_limit_of_finer_ones() -> None:
    """The more ticks a second has, the nearer Algorithm 2 comes to continuous time."""
    case = replace(laplacian_case(5, "start"), times=("normal(0.1, 0.02)",) * 10)
    fine, finest = (
        relax(
            case.A, case.b, pattern=case.blocks, time=list(case.times), scale_factor=scale, seed=5
        )
        for scale in (1e9, None)
    )
    assert (fine.updates == finest.updates).all()
    assert fine.virtual_time == pytest.approx(finest.virtual_time, rel=1e-8)
    np.testing.assert_allclose(fine.x, finest.x, rtol=1e-9)
