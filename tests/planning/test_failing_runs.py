"""Training and plans on nodes that fail: `--mtbf` from the configuration to the summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from profiled_network import save_network

from paracosm.errors import InputError
from paracosm.planning.config import PlanConfig
from paracosm.planning.failures import failing_schedule
from paracosm.planning.plan import run_plan
from paracosm.planning.runs import SharedBlocks
from paracosm.planning.scheduled import iterations, run_scheduled
from paracosm.planning.train_config import ProfileTrainConfig, StrategyTrainConfig
from paracosm.results import FailureSummary, TrainingSummary
from paracosm.simulation.rollback import Restore
from paracosm.simulation.rules import ssgd
from paracosm.simulation.schedule import Schedule
from paracosm.studies import KINDS
from paracosm.training import TrainConfig, TrainingResult
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.training.view import FIGURES

COSTS = {"checkpoint_cost": "10ms", "checkpoint_every": "100ms", "restart_cost": "50ms"}


def config(folder: Path, **arguments: Any) -> ProfileTrainConfig:
    given = {"bandwidth": "10MB/s", "updates": 40, "lookahead": "off", "workers": 3}
    return ProfileTrainConfig(profile=save_network(folder), **{**given, **arguments})


def run(folder: Path, **arguments: Any) -> tuple[TrainingResult, FailureSummary]:
    result = run_scheduled(config(folder, **arguments))
    assert result.summary.failures is not None
    return result, result.summary.failures


def test_a_synchronous_job_goes_back_and_makes_all_its_updates(tmp_path: Path) -> None:
    result, failures = run(tmp_path, algorithm="ssgd", mtbf="1s a worker", **COSTS)
    plain = run_scheduled(config(tmp_path, algorithm="ssgd")).summary
    assert failures.stops >= 2
    assert failures.checkpoints >= 2
    assert failures.failures == 0
    assert failures.lost > 0
    assert result.summary.updates == plain.updates == 40
    assert result.summary.examples > plain.examples  # those that were lost, too
    # What fails costs time: restarts, checkpoints, and work that is done again.
    extra = result.summary.virtual_time - plain.virtual_time
    spent = (1 - failures.effective) * result.summary.virtual_time
    assert extra == pytest.approx(spent, abs=0.1 * plain.virtual_time)
    assert failures.goodput == pytest.approx(3 * 40 / result.summary.virtual_time, rel=1e-6)
    assert "assumed: 1s a worker, restarts of 50 ms" in result.summary.durations["failures"]
    said = FIGURES["Failures"](result.summary)
    assert said is not None
    assert f"; the job stopped {failures.stops} times; " in said


def test_what_lasted_is_a_schedule_that_trains_to_the_same_parameters(tmp_path: Path) -> None:
    """Numerics are restored: as if what was lost had only taken its minibatches."""
    for arguments in (
        {"algorithm": "ssgd", "optimizer": "sgd(momentum=0.9)", "mtbf": "1s a worker"},
        {"algorithm": "asgd", "mtbf": "500ms a node"},
    ):
        result, failures = run(tmp_path, **arguments, **COSTS)
        assert failures.stops > 0
        schedule = result.schedule
        assert schedule is not None
        learnt = {name: argument for name, argument in arguments.items() if name != "mtbf"}
        asked = TrainConfig(workers=3, updates=40, lookahead="off", **learnt)
        again = train_on_schedule(asked, [schedule], schedule.tensors, 0)
        assert torch.equal(again.parameters, result.parameters)


def test_an_asynchronous_job_goes_on(tmp_path: Path) -> None:
    result, failures = run(
        tmp_path, algorithm="asgd", updates=120, mtbf="300ms a worker", restart_cost="50ms"
    )
    assert failures.stops == 0
    assert failures.failures >= 3
    assert result.summary.dropped > 0
    assert result.summary.updates == 120
    workers_time = 3 * result.summary.virtual_time
    # Of those that failed last, not all were back at the end.
    assert 0 <= failures.failures * 0.05 - failures.restarting * workers_time <= 3 * 0.05
    # Each worker fails once in 350 ms: so often, give or take three deviations.
    assert abs(failures.failures - workers_time / 0.35) < 3 * (workers_time / 0.35) ** 0.5


def test_failures_are_counted_once_however_many_steps_are_drawn(tmp_path: Path) -> None:
    """1,300 steps of each worker, of which 256 are drawn first, then 1,024, then more."""
    _, failures = run(
        *(tmp_path,),
        algorithm="asgd",
        workers=1,
        mtbf="2s a worker",
        updates=1300,
        restart_cost="50ms",
        evaluate_every=1300,
    )
    result = run_scheduled(config(tmp_path, algorithm="asgd", workers=1, updates=10))
    step = result.summary.virtual_time / 10
    wanted = 1300 * step / 2
    assert abs(failures.failures - wanted) < 3 * wanted**0.5


def test_the_same_seed_is_the_same_run_and_is_written_and_read(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"algorithm": "ssp(slack=1)", "mtbf": "400ms a node", **COSTS}
    first, failures = run(tmp_path, **arguments)
    again, _ = run(tmp_path, **arguments)
    assert torch.equal(first.parameters, again.parameters)
    written = first.summary.to_dict()
    assert TrainingSummary.from_dict(written).failures == failures
    asked = config(tmp_path, **arguments)
    fields = asked.model_dump(mode="json", exclude_unset=True)
    assert ProfileTrainConfig.model_validate(fields) == asked


def test_iterations_of_a_strategy_stop_together() -> None:
    strategy = StrategyTrainConfig.model_validate(
        {"strategy": "ddp", "mtbf": "5s a worker", **COSTS}
    )
    failures = strategy.job_failures(3, 0, True)
    asked = TrainConfig(algorithm="ssgd", workers=3, updates=30, lookahead="off")
    blocks = failing_schedule(
        lambda *_: iterations(3, 0.1),
        failures,
        workers=3,
        servers=0,
        tensors=1,
        rule=ssgd(3),
        seed=1,
    )
    result = train_on_schedule(asked, blocks, (), 1)
    assert result.summary.updates == 30
    assert result.summary.virtual_time > 30 * 0.1 + 20 * 0.01
    assert result.summary.mean_staleness == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"restart_cost": "1s"}, "restart_cost: has no effect, leave it out: nothing fails"),
        ({"fault": "stop(1s) on worker 0 at 1s"}, "cannot be combined with"),
        ({"recovery": "restart"}, "cannot be combined with"),
        ({"mtbf": "1h a worker", "algorithm": "easgd"}, "easgd depends on values"),
        ({"mtbf": "1h a worker", "checkpoint_every": "1h"}, "continues without failed workers"),
        ({"mtbf": "30 days"}, "does not say of what"),
    ],
)
def test_what_has_no_effect_is_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        KINDS["train"].configured({"profile": save_network(tmp_path), **arguments}, "test")


def test_costs_that_are_missing_are_known_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="add --checkpoint-cost 10s"):
        config(tmp_path, algorithm="ssgd", mtbf="1h a worker", restart_cost="1s").check()
    with pytest.raises(InputError, match="add --restart-cost 60s"):
        plan(tmp_path, mtbf="1h a worker").check()


def test_a_horizon_within_a_restart_ends_there() -> None:
    """Iterations of 0.1 s until a failure at 1.05 s, a restart until 6.05 s, a horizon at 2 s."""
    block = next(iterations(1, 0.1))
    second = 10**12
    done = block.updates["time"] <= 1.05 * second
    first = replace(
        block,
        reads=block.reads[block.reads["time"] <= 1.05 * second],
        updates=block.updates[done],
        steps=block.steps[done],
        end=int(1.05 * second),
    )
    stop = Restore(int(1.05 * second), int(6.05 * second), int(1.05 * second), 0, 1)
    shared = SharedBlocks(iter([first, stop, block]))
    assert list(shared.until(2.0)) == [first, stop._replace(end=2 * second)]
    *_, last = shared.until(1.02)
    assert isinstance(last, Schedule)
    assert (last.end, len(last.updates)) == (int(1.02 * second), 0)
    assert next(shared.until(1.5)) is first
    assert len(list(shared.until(7.0))) == 3


def plan(folder: Path, **arguments: Any) -> PlanConfig:
    return PlanConfig(
        profile=save_network(folder),
        target="accuracy >= 0.6",
        workers=(1, 2),
        algorithm="asgd, ssgd",
        lr=0.2,
        seeds=2,
        updates=300,
        bandwidth="10MB/s",
        lookahead="off",
        evaluate_every=10,
        **arguments,
    )


def test_a_plan_counts_failures(tmp_path: Path) -> None:
    found = run_plan(plan(tmp_path, mtbf="800ms a worker", **COSTS), 0)
    plain = run_plan(plan(tmp_path), 0)
    assert "800ms a worker" in found.durations["failures"]
    assert all(design.effective is None for design in plain.designs)
    shares = {
        (design.workers, design.algorithm): design.effective or 0.0 for design in found.designs
    }
    assert all(0 < share <= 1 for share in shares.values())
    # Two synchronous workers stop together, two asynchronous ones do not.
    assert shares[2, "ssgd"] < shares[2, "asgd"] < 1
    assert found.fastest is not None
    assert plain.fastest is not None
    times = [summary.designs[summary.fastest or 0].time.median for summary in (found, plain)]
    assert None not in times
    assert times[0] > times[1]  # type: ignore[operator]
