"""Which design is fastest and which cheapest: by ratios of runs with the same seed, as printed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from paracosm.planning.comparison import Comparison
from paracosm.planning.designs import Design, Outcome
from paracosm.planning.successive_halving import Candidate
from paracosm.training.algorithms.registry import parse_algorithm

ASGD = parse_algorithm("asgd")


def candidate(workers: int, times: list[float], lr: float = 0.1) -> Candidate:
    """Return a design that reached the target after `times`, by seed; infinite: never."""
    outcomes = {}
    for seed, time in enumerate(times):
        reached = time < inf
        outcomes[seed] = Outcome(
            status="reached" if reached else "not reached", time=time if reached else None,
            updates=10 if reached else None, made=10, steps=10, spent=min(time, 100.0), first=1.0,
            best=0.1, curve=(), staleness=None,
        )  # fmt: skip
    return Candidate(Design(workers, ASGD, lr), outcomes, "reached")


def compared(*candidates: Candidate) -> Comparison:
    seeds = range(max(len(candidate.outcomes) for candidate in candidates))
    return Comparison.of({candidate.design: candidate for candidate in candidates}, seeds)


def test_the_cheapest_is_so_pair_by_pair() -> None:
    """Two workers: medians 10 and 4.9, so a cost of 9.8 for 10; but seed by seed 2 x 4.9 / 9.4,
    2 x 5.2 / 10 and 2 x 4.3 / 11, whose median, 1.04, is above 1.
    """
    one = candidate(1, [9.4, 10.0, 11.0])
    two = candidate(2, [4.9, 5.2, 4.3])
    found = compared(one, two)
    assert found.reference == one.design
    assert abs(found.relative_cost(two.design) - 1.04) < 1e-12
    assert found.cheapest() == one.design
    assert found.fastest() == two.design
    # Logarithms of 1.0426, 1.04 and 0.782: mean -0.055, deviation 0.166: not told apart.
    assert found.not_apart(one.design, lambda design: design.workers) == [two.design]
    assert found.not_apart(two.design, lambda design: 1.0) is None


def test_who_misses_the_target_with_some_seeds_is_not_fastest_for_the_others() -> None:
    sure = candidate(1, [10.0, 10.0, 10.0, 10.0, 10.0])
    lucky = candidate(2, [9.0, 9.0, inf, 11.0, inf])
    never = candidate(4, [1.0, inf, inf, inf, inf])
    found = compared(sure, lucky, never)
    assert found.fastest() == sure.design
    assert never.design not in found.speedups
    assert compared(never).reference is None


def test_a_single_seed_tells_nothing_apart() -> None:
    found = compared(candidate(1, [10.0]), candidate(2, [4.0]))
    assert found.fastest() is not None
    assert found.not_apart(found.fastest(), lambda design: 1.0) is None


TIMES = st.lists(st.floats(0.1, 100.0), min_size=3, max_size=3)


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), TIMES), min_size=1, max_size=6))
def test_no_design_has_a_better_number_than_the_one_that_is_named(
    designs: list[tuple[int, list[float]]],
) -> None:
    found = compared(*(candidate(w, times, 0.01 * (n + 1)) for n, (w, times) in enumerate(designs)))
    fastest, cheapest = found.fastest(), found.cheapest()
    assert fastest is not None
    assert cheapest is not None
    assert found.speedups[fastest] == max(found.speedups.values())
    assert found.relative_cost(cheapest) == min(map(found.relative_cost, found.speedups))
    assert found.reference is not None
    assert found.reference.workers == min(workers for workers, _ in designs)
    assert found.speedups[found.reference] == 1
    for workers in {workers for workers, _ in designs}:
        best = found.fastest(workers)
        own = [found.speedups[speedup] for speedup in found.speedups if speedup.workers == workers]
        assert best is not None
        assert found.speedups[best] == max(own)


def test_the_interrupted_compare_what_both_have() -> None:
    one, two = candidate(1, [10.0, 12.0]), candidate(2, [4.0, 5.0])
    some = replace(two, outcomes={0: two.outcomes[0]})
    assert compared(one, some).speedups[two.design] == 2.5
