"""Energy: the power of each node times the time that it computes, waits and is off, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.relaxation import relax
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.run import run_relaxation
from paracosm.report.runs import answer

PROBLEM = load_problem("laplace2d:4", seed=1)
POWER = {"busy": "250 W", "idle": "60 W", "off": "5 W"}


def cluster(*speeds: float, power: Any = POWER) -> dict[str, Any]:
    workers = [{"count": 1, "speed": speed, "power": power} for speed in speeds]
    return {"topology": "switch", "workers": workers}


GIVEN: dict[str, Any] = {"memory": "shared", "tolerance": None, "time": 10}


def test_who_never_waits_is_busy_all_the_time() -> None:
    # Updates of 10 and 20 s; at 35 s one of each is in flight.
    result = relax(PROBLEM, cluster=cluster(1, 0.5), max_time=35, **GIVEN)
    assert result.busy.tolist() == [35, 35]
    assert result.energy == 2 * 35 * 250


def test_at_a_barrier_the_faster_one_waits() -> None:
    # A sweep takes 20 s and 1 s of barrier: two of them, and 3 s.
    result = relax(
        PROBLEM, cluster=cluster(1, 0.5), synchronous=True, barrier=1, max_time=45, **GIVEN
    )
    assert result.busy.tolist() == [10 + 10 + 3, 20 + 20 + 3]
    assert result.energy == (23 + 43) * 250 + (22 + 2) * 60


def test_who_is_stopped_is_off_and_loses_its_update() -> None:
    # Processor 1 has computed for 15 s when it stops, until 22 s, and begins anew.
    result = relax(
        PROBLEM, cluster=cluster(1, 0.5), fault="stop(7s) on processor 1 at 15s", max_time=35,
        **GIVEN,
    )  # fmt: skip
    assert result.busy.tolist() == [35, 15 + 13]
    assert result.off.tolist() == [0, 7]
    assert result.energy == (35 + 28) * 250 + 7 * 5


def test_one_that_stops_for_good_is_off_to_the_end() -> None:
    result = relax(
        PROBLEM, cluster=cluster(1, 1), fault="stop on processor 0 at 15s", max_time=35, **GIVEN
    )
    assert result.off.tolist() == [20, 0]
    assert result.energy == (15 + 35) * 250 + 20 * 5


def test_all_wait_while_a_checkpoint_is_saved() -> None:
    # Checkpoints at 12 and 24 s of computing, 3 s each: at 36 s all have computed for 30 s.
    result = relax(
        PROBLEM, cluster=cluster(1, 1), checkpoint="alpha=100, omega=12s, cost=3s", max_time=36,
        **GIVEN,
    )  # fmt: skip
    assert result.checkpoints == 2
    assert result.energy == 2 * (30 * 250 + 6 * 60)


@pytest.mark.parametrize("read", ["start", "completion"])
@pytest.mark.parametrize("how", [{}, {"synchronous": True, "read": "start"}, {"scale_factor": 7}])
def test_busy_waiting_and_off_are_all_of_the_time(read: str, how: dict[str, Any]) -> None:
    given: dict[str, Any] = {"read": read, "time": "copy=1s, compute=gamma(10, 4), update=1s"} | how
    result = relax(
        load_problem("laplace2d:6"), cluster=cluster(1, 1.5, 0.7, power={"busy": 7, "idle": 7}),
        memory="shared", fault="stop(40s) every 300s", checkpoint="alpha=5, omega=90s, cost=4s",
        tolerance=1e-3, **given,
    )  # fmt: skip
    waiting = result.virtual_time - result.busy - result.off
    assert (waiting >= -1e-9 * result.virtual_time).all()
    assert (result.busy > 0).all()
    # What draws the same in all states needs no division into states.
    joules = 7 * (3 * result.virtual_time - result.off.sum())
    assert result.energy == pytest.approx(joules, rel=1e-12)


def test_energy_to_solution_beside_the_synchronous_baseline() -> None:
    config = RelaxConfig(problem="laplace2d:6", cluster=cluster(1, 1, 0.5), memory="shared")
    summary = run_relaxation(config).summary
    assert summary.twin is not None
    assert summary.energy == pytest.approx(3 * 250 * summary.virtual_time)
    # The two faster ones wait for half of the time, or less: durations spread.
    both = summary.twin.virtual_time
    assert summary.twin.energy is not None
    assert summary.twin.energy == pytest.approx((250 + 2 * 155) * both, rel=0.05)
    assert "times the energy (" in answer(summary)


def test_without_power_nothing_is_said() -> None:
    result = relax(PROBLEM, processors=2, **(GIVEN | {"max_time": 30}))
    assert result.energy is None
    assert np.array_equal(result.busy, [30, 30])


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ({"busy": "250 W", "idle": "300 W"}, "0 W <= off <= idle <= busy"),
        ({"busy": "250", "idle": "60 W"}, "has no unit: write a power as 250W"),
        ({"busy": "250 J", "idle": "60 W"}, "unknown power unit"),
        ({"busy": "250 W"}, "idle"),
    ],
)
def test_what_is_refused(power: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        relax(PROBLEM, cluster=cluster(1, power=power), max_time=10, **GIVEN)


def test_power_of_some_nodes_only_is_refused() -> None:
    mixed = cluster(1)
    mixed["workers"].append({"count": 1})
    with pytest.raises(InputError, match="power: give it for all nodes, or for none"):
        relax(PROBLEM, cluster=mixed, max_time=10, **GIVEN)
