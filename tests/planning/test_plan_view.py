"""What is said of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paracosm.report.runs import answer, tables_of
from paracosm.results import Planned, PlannedDesign, PlanSummary, TunedWorkers

NEVER = Planned(median=None, low=None, high=None)


def design(workers: int, seconds: float | None, **changes: Any) -> PlannedDesign:
    """Return a design that took so long, within a tenth, or was dropped."""
    given = {
        "algorithm": "ssp(slack=3)",
        "lr": 0.1,
        "verdict": "slow" if seconds is None else "reached",
        "why": "not there after 60 s" if seconds is None else "",
        "seeds": 1 if seconds is None else 5,
        "reached": 0.0 if seconds is None else 1.0,
        "time": NEVER
        if seconds is None
        else Planned(median=seconds, low=0.9 * seconds, high=1.1 * seconds),
        "updates": NEVER if seconds is None else Planned(median=240.0, low=200.0, high=300.0),
        "steps_per_second": 6.0,
        "updates_per_second": 6.0,
        "cost": None if seconds is None else workers * seconds / 1000,
        "speedup": None,
        "relative_cost": None,
        "staleness": workers - 1.0,
        "best": 0.12,
        "steepness": 0.41,
        "steepest": 0.1,
        "is_efficient": seconds is not None,
    }
    return PlannedDesign(workers=workers, **given | changes)


def plan(*designs: PlannedDesign, **changes: Any) -> PlanSummary:
    given = {
        "status": "done",
        "target": "test_loss <= 0.1",
        "profile": "job.profile",
        "model": "mlp",
        "data": "digits",
        "batch": 32,
        "seed": 0,
        "seeds": 5,
        "most_updates": 3000,
        "price": "2.5 EUR/h a worker",
        "currency": "EUR",
        "designs": list(designs),
        "fastest": None,
        "cheapest": None,
        "reference": None,
        "by_workers": [],
        "curvature": 4.1,
        "runs": 40,
        "updates_made": 9000,
        "cluster": {},
        "wall_time": 10.0,
        "durations": {},
    }
    return PlanSummary(**given | changes)


ONE = design(1, 86.0, algorithm="asgd", lr=0.2)
EIGHT = design(8, 41.0, speedup=2.1, relative_cost=3.8)
BOTH = plan(
    *(ONE, EIGHT, design(32, None)),
    fastest=1,
    cheapest=0,
    reference=0,
    by_workers=[
        TunedWorkers(workers=1, design=0, tuning_time=100.0, tuning_cost=0.1),
        TunedWorkers(workers=32, design=None, tuning_time=60.0, tuning_cost=1.9),
    ],
)


def test_the_answer_is_one_sentence() -> None:
    assert answer(BOTH) == (
        "Test loss 0.1 is reached soonest with 8 workers, ssp(slack=3), lr 0.1: 41 s (80 % of "
        "seeds within 36.9 to 45.1 s), 2.1 times as fast as one worker at 3.8 times its cost; "
        "cheapest: 1 worker, asgd, lr 0.2, 86 s (80 % of seeds within 77.4 to 94.6 s), 0.086 EUR."
    )


def test_what_is_assumed_of_links_ends_the_answer() -> None:
    durations = {
        "start": "assumed: workers begin together",
        "latency": "assumed: links without latency",
        "bandwidth": "assumed: links of 8 Mbit/s, as profiled",
    }
    assert answer(replace(BOTH, durations=durations)).endswith(
        "0.086 EUR. Assuming links without latency and links of 8 Mbit/s, as profiled."
    )


def test_what_seeds_do_not_tell_apart_is_said() -> None:
    said = answer(replace(BOTH, as_fast=[0], as_cheap=[1]))
    assert (
        "2.1 times as fast as one worker at 3.8 times its cost (5 seeds do not tell it apart by "
        "time from 1 worker, asgd, lr 0.2); cheapest: 1 worker, asgd, lr 0.2, 86 s"
    ) in said
    assert said.endswith(
        "0.086 EUR (5 seeds do not tell it apart by cost from 8 workers, ssp(slack=3), lr 0.1)."
    )


def test_seeds_that_never_came_are_said() -> None:
    some = replace(EIGHT, reached=0.8, time=Planned(median=41.0, low=37.0, high=None))
    assert "41 s (80 % of seeds within 37 s to never, 80% of seeds reached it)" in answer(
        plan(ONE, some, fastest=1, cheapest=0, reference=0)
    )


@pytest.mark.parametrize(
    ("price", "currency", "cost"),
    [(None, "", "0.086 worker-hours"), ("2/h a worker", "", "0.086"), ("$2", "$", "$0.086")],
)
def test_costs_have_their_currency(price: str | None, currency: str, cost: str) -> None:
    said = answer(replace(BOTH, price=price, currency=currency))
    assert said.endswith(f", {cost}.")


def test_nothing_is_cheaper_than_the_cheapest() -> None:
    assert answer(plan(ONE, fastest=0, cheapest=0, reference=0)).endswith("; nothing is cheaper.")


def test_a_target_that_nobody_reached_has_best_values_and_what_to_try() -> None:
    near = design(4, None, best=0.103, lr=0.2, verdict="not reached")
    far = design(4, None, best=0.2, lr=0.05, verdict="worse")
    said = answer(plan(far, near, status="not reached"))
    assert said == (
        "No design reaches test loss 0.1: best 0.103 (4 workers, ssp(slack=3), lr 0.2), 0.2 "
        "(4 workers, ssp(slack=3), lr 0.05); try --updates 12000, higher learning rates (--lr 0.4) "
        "or an easier target."
    )
    wild = design(4, None, verdict="diverged")
    assert answer(plan(wild, status="not reached")).endswith("try lower learning rates: --lr 0.01.")


def test_tables_keep_throughput_and_updates_apart() -> None:
    kept, dropped, tuned = tables_of(BOTH)
    assert [row[0] for row in kept.rows] == [
        "8 workers, ssp(slack=3), lr 0.1",
        "1 worker, asgd, lr 0.2",
    ]
    assert dict(zip(kept.header, kept.rows[0], strict=True))["updates"] == "240"
    assert dict(zip(kept.header, kept.rows[0], strict=True))["updates/s"] == "6"
    assert dropped.rows[0][1:] == ("slow", "0.12", "31", "0.41", "0.1", "not there after 60 s")
    assert tuned.rows[1] == ("32", "none: slow", "", "60 s", "1.9 EUR")


def test_other_predictors_are_columns_where_they_were_asked() -> None:
    said = replace(EIGHT, baselines={"constant_updates": 12.0, "goodput": None})
    header = tables_of(plan(said))[0].header
    assert header[-1] == "updates of one worker"


def test_a_summary_is_read_back_as_it_was_written() -> None:
    again = PlanSummary.from_dict(BOTH.to_dict())
    assert answer(again) == answer(BOTH)
    assert again.to_dict() == BOTH.to_dict()
