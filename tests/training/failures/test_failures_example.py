"""The example of failures: that it measures what it says, and that its checks can fail."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "failures" / "run.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_the_same_failures_cost_more_where_more_stand_still(example: dict[str, Any]) -> None:
    found = {way: example["run"](way, "failing", 1).summary for way in example["WAYS"]}
    asgd, restart, rejoin, elastic = (each.reached_at for each in found.values())
    assert elastic < rejoin < restart
    assert asgd < rejoin
    costs = {way: each.failures for way, each in found.items()}
    assert costs["ssgd, restart"].stops > 0
    assert costs["ssgd, restart"].failures == costs["asgd"].stops == 0
    assert costs["asgd"].failures > 0


def test_checks_hold_what_they_say(example: dict[str, Any]) -> None:
    ways, conditions = example["WAYS"], example["CONDITIONS"]
    equal = {(way, condition): 1.0 for way in ways for condition in conditions}
    assert [holds for _, holds in example["checks"](equal)] == [True, False, False, False]
    never = equal | {("asgd", "slow"): float("inf")}
    assert not example["checks"](never)[0][1]
