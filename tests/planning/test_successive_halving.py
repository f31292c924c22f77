"""Successive halving of designs, over runs whose outcomes are worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.planning.designs import Design, Outcome, designs_of
from paracosm.planning.successive_halving import RUNGS, SLOWER, Candidate, Request, halve
from paracosm.training.algorithms.registry import parse_algorithm

ASGD, SSGD = parse_algorithm("asgd"), parse_algorithm("ssgd")
UPDATES = 1600


@dataclass
class Job:
    """A design whose loss falls from 2 by `slope` an update; the target is a loss of 1."""

    slope: float
    seconds: float = 1.0  # of an update
    explodes: bool = False

    def run(self, request: Request) -> Outcome:
        needed = 1 / self.slope if self.slope > 0 else inf
        made = min(needed, request.updates, request.horizon / self.seconds)
        reached = made == needed
        spent = made * self.seconds
        return Outcome(
            status="diverged"
            if self.explodes
            else "reached"
            if reached
            else "not reached"
            if made == request.updates
            else "stopped",
            time=spent if reached else None,
            updates=int(made) if reached else None,
            spent=spent,
            made=int(made),
            steps=int(made),
            first=2.0,
            best=min(2.0, 2 - self.slope * made),
            staleness=0.0,
            curve=[[0.0, 0.0, 2.0]] * 5,
        )


def raced(
    jobs: Mapping[Design, Job], seeds: int = 3
) -> tuple[dict[Design, Candidate], list[Request]]:
    asked: list[Request] = []

    def run(requests: Sequence[Request]) -> Iterator[tuple[Request, Outcome]]:
        asked.extend(requests)
        for request in reversed(requests):  # any order will do
            yield request, jobs[request.design].run(request)

    found: dict[Design, Candidate] = {}
    halve(list(jobs), range(seeds), UPDATES, run, lambda a, b: a < b, found)
    return found, asked


def test_who_reaches_the_target_runs_with_all_seeds() -> None:
    one, eight = Design(1, ASGD, 0.1), Design(8, ASGD, 0.1)
    found, asked = raced({one: Job(1 / 80, 1.0), eight: Job(1 / 100, 0.2)})
    assert [each.verdict for each in found.values()] == ["reached", "reached"]
    assert [len(each.outcomes) for each in found.values()] == [3, 3]
    assert [request.updates for request in asked] == [100, 100, *[UPDATES] * 4]
    assert found[eight].outcomes[2].time == pytest.approx(20.0)


def test_a_design_that_explodes_or_learns_nothing_gets_the_fewest_updates() -> None:
    wild, flat = Design(4, ASGD, 9.0), Design(4, SSGD, 1e-9)
    found, asked = raced({wild: Job(0.1, explodes=True), flat: Job(0.0)})
    assert found[wild].verdict == "diverged"
    assert found[flat].verdict == "learns nothing"
    assert {request.updates for request in asked} == {UPDATES * RUNGS[0]}


def test_a_design_that_is_not_there_after_half_as_long_again_is_slow() -> None:
    quick, slow, fewer = Design(2, ASGD, 0.1), Design(2, SSGD, 0.1), Design(1, ASGD, 0.1)
    jobs = {quick: Job(1 / 50, 1.0), slow: Job(1 / 300, 1.0), fewer: Job(1 / 390, 1.0)}
    found, asked = raced(jobs)
    assert found[slow].verdict == "slow"  # 100 s, and 50 s were enough for as many workers
    assert found[slow].why == "not there after 100 s; 2 workers, asgd, lr 0.1 needs 50 s"
    assert found[fewer].verdict == "reached"  # as slow, but cheaper
    assert all(request.horizon == inf for request in asked if request.design == fewer)


def test_runs_of_later_rungs_end_at_the_horizon() -> None:
    quick, late = Design(1, ASGD, 0.1), Design(1, SSGD, 0.1)
    found, asked = raced({quick: Job(1 / 90, 1.0), late: Job(1 / 500, 1.1)})
    second = [request for request in asked if request.design == late][1]
    assert second.horizon == pytest.approx(SLOWER * 90)
    assert found[late].outcomes[0].spent == pytest.approx(SLOWER * 90)
    assert found[late].verdict == "slow"


def test_many_workers_run_no_longer_than_fewer_leave_them() -> None:
    one, four = Design(1, ASGD, 0.1), Design(4, ASGD, 0.1)
    found, asked = raced({four: Job(1 / 90, 9.0), one: Job(1 / 50, 1.0)})
    assert [request.design for request in asked[:2]] == [one, four]
    assert asked[1].horizon == pytest.approx(SLOWER * 50)
    assert found[four].outcomes[0].spent == pytest.approx(SLOWER * 50)
    assert found[four].verdict == "slow"


def test_of_learning_rates_on_their_way_the_worse_half_is_dropped() -> None:
    rates = [Design(1, ASGD, lr) for lr in (0.1, 0.2, 0.4, 0.8)]
    slopes = [1 / 1000, 1 / 800, 1 / 1200, 1 / 900]
    found, _ = raced({design: Job(slope) for design, slope in zip(rates, slopes, strict=True)})
    assert [found[design].verdict for design in rates] == ["worse", "reached", "worse", "worse"]
    assert found[rates[0]].why == "1.9 after 100 updates, lr 0.2 1.875"


def test_a_target_that_is_too_far_is_reached_by_nobody() -> None:
    found, _ = raced({Design(1, ASGD, 0.1): Job(1e-4)})
    (candidate,) = found.values()
    assert (candidate.verdict, candidate.why) == ("not reached", "not there after 1,600 updates")


def test_an_interrupt_keeps_what_is_there() -> None:
    design, other = Design(1, ASGD, 0.1), Design(2, ASGD, 0.1)

    def run(requests: Sequence[Request]) -> Iterator[tuple[Request, Outcome]]:
        yield requests[0], Job(0.1).run(requests[0])
        raise KeyboardInterrupt

    found: dict[Design, Candidate] = {}
    with pytest.raises(KeyboardInterrupt):
        halve([design, other], [0], 100, run, lambda a, b: a < b, found)
    assert len(found[design].outcomes) == 1
    assert len(found[other].outcomes) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 400), st.floats(0.1, 3.0)),
        min_size=1,
        max_size=8,
    )
)
def test_the_fastest_design_and_one_for_any_fewer_workers_stay(
    drawn: list[tuple[int, int, float]],
) -> None:
    """One learning rate each, so that halving drops nobody."""
    jobs = {
        Design(workers, parse_algorithm(f"ssp(slack={place})"), 0.1): Job(1 / needed, seconds)
        for place, (workers, needed, seconds) in enumerate(drawn)
    }
    time = {design: job.seconds / job.slope for design, job in jobs.items()}
    found, asked = raced(jobs)
    for most in (1, 2, 4):
        affordable = [design for design in jobs if design.workers <= most]
        if affordable:
            fastest = found[min(affordable, key=lambda design: time[design])]
            assert fastest.verdict == "reached"
            assert len(fastest.outcomes) == 3
    assert len({(r.design, r.seed, r.updates) for r in asked}) == len(asked)


def test_designs_of_one_worker_that_are_alike_are_one() -> None:
    algorithms = [parse_algorithm(text) for text in ("asgd", "ssp(slack=3)", "staleness-aware")]
    found = designs_of([1, 4], algorithms, [0.1, 0.2])
    assert [str(each) for each in found[:3]] == [
        "1 worker, asgd, lr 0.1",
        "1 worker, asgd, lr 0.2",
        "4 workers, asgd, lr 0.1",
    ]
    assert len(found) == 2 + 6
    buffered = designs_of([1], [parse_algorithm("asgd"), parse_algorithm("fedbuff")], [0.1])
    assert [each.algorithm.name for each in buffered] == ["asgd", "fedbuff"]


def test_rates_scale_with_workers_by_a_rule() -> None:
    assert [each.lr for each in designs_of([1, 4, 16], [ASGD], [0.1], "linear")] == [0.1, 0.4, 1.6]
    assert [each.lr for each in designs_of([1, 4, 16], [ASGD], [0.1], "sqrt")] == [0.1, 0.2, 0.4]
