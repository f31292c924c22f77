"""The example of Llama 3's run: its numbers by hand, and that its simulation is of the same job."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from itertools import takewhile
from math import exp, expm1
from pathlib import Path
from typing import Any

import pytest

from paracosm.faults import failure_instants

EXAMPLE = Path(__file__).parents[2] / "examples" / "time_to_accuracy" / "llama3.py"


@pytest.fixture(scope="module")
def llama3() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_its_numbers_by_hand(llama3: dict[str, Any]) -> None:
    """54 x 24 h / 419 = 3.093 h; 16,384 x 4 GB / 2 TB/s; 6.2 s for 4.08e19 of 6.55e18 a second."""
    assert llama3["mtbf"]().of_job(16_384, 0) / 3600 == pytest.approx(3.0931, abs=1e-4)
    assert llama3["mtbf"]().worker / 86_400 == pytest.approx(2111.6, abs=0.1)
    assert llama3["CHECKPOINT"] == pytest.approx(32.768)
    assert llama3["ITERATION"] == pytest.approx(6.221, abs=0.001)


def test_shares_are_dalys_less_the_planned_restarts(llama3: dict[str, Any]) -> None:
    """15 min of work and 32.768 s of saving, restarts of 300 s, a failure every 11,135 s."""
    mtbf, segment = 54 * 86_400 / 419, 900 + 32.768
    wanted = 900 / (mtbf * exp(300 / mtbf) * expm1(segment / mtbf)) * (1 - 47 * 300 / 4_665_600)
    assert llama3["expected_share"](900.0, 300.0) == pytest.approx(wanted, rel=1e-12)


def test_what_must_have_been_true(llama3: dict[str, Any]) -> None:
    """Above 90 %: checkpoints every 10 to 30 minutes, and restarts of a few minutes."""
    share: Callable[[float, float], float] = llama3["expected_share"]
    longest: Callable[[float, float], float] = llama3["longest_restart"]
    for interval in (600.0, 900.0, 1800.0):
        assert share(interval, longest(interval, 0.9)) == pytest.approx(0.9, abs=1e-9)
    assert max(longest(60.0 * each, 0.9) for each in range(1, 200)) < longest(900.0, 0.9) + 5
    assert 4 * 60 < longest(900.0, 0.9) < 5 * 60
    # Saved every hour, half an hour is lost with each failure: 90 % cannot be.
    assert longest(3600.0, 0.9) < 1e-6
    assert share(3600.0, 0.0) < 0.9


def test_a_simulated_run_agrees_with_the_formula_of_its_own_failures(
    llama3: dict[str, Any],
) -> None:
    """Each failure beyond 419 costs what one costs: a restart and half a segment."""
    seed, interval, restart = 0, 900.0, 180.0
    time = 54 * 86_400.0
    instants = failure_instants(llama3["mtbf"](), 16_384, 0, seed)
    failures = sum(1 for _ in takewhile(lambda instant: instant < time, instants))
    assert abs(failures - 419) < 3 * 419**0.5
    more = (failures - 419) * (restart + (interval + llama3["CHECKPOINT"]) / 2) / time
    found = llama3["simulated_share"](interval, restart, seed)
    # What is lost with a failure is uniform over a segment: the mean of 419 is known to 270 s /
    # sqrt(419), together 419 x 13 s or 0.12 % of the time.
    assert found == pytest.approx(llama3["expected_share"](interval, restart) - more, abs=0.0035)
