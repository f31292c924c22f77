"""Training over predicted schedules: of a job profile, of a strategy, and coupled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiled_network import BACKWARD, FORWARD, TENSORS, save_network

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.planning.scheduled import iterations, run_scheduled
from paracosm.planning.train_config import ProfileTrainConfig, StrategyTrainConfig
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.parameter_servers.config import ThroughputConfig
from paracosm.prediction.run import run_prediction
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import OpTiming, Spread
from paracosm.results import JobSummary, ThroughputSummary
from paracosm.simulation.schedule import join_schedules
from paracosm.studies import KINDS
from paracosm.training import Metrics, TrainConfig, TrainingResult, train

SIZE = 4 * sum(TENSORS.values())


def run(folder: Path, seed: int = 0, **arguments: Any) -> TrainingResult:
    given = {"bandwidth": "10MB/s", "updates": 20, "lookahead": "off", **arguments}
    return run_scheduled(ProfileTrainConfig(profile=save_network(folder), **given), seed)


def losses(result: TrainingResult) -> list[float]:
    assert isinstance(result.metrics, Metrics)
    return [row.value for row in result.metrics.series("minibatch_loss")]


def test_one_worker_does_plain_sgd_at_the_pace_of_its_profile(tmp_path: Path) -> None:
    result = run(tmp_path, workers=1, algorithm="asgd")
    plain = train(TrainConfig(algorithm="sequential", workers=1, updates=20, lookahead="off"), 0)
    assert losses(result) == pytest.approx(losses(plain), rel=1e-6)
    step = 2 * SIZE / 10e6 + (FORWARD + BACKWARD) * 1.007
    assert result.summary.virtual_time == pytest.approx(20 * step, rel=0.01)
    assert result.summary.durations["compute"].startswith("measured: 14 ops in 8 steps")


def test_synchronous_training_is_that_of_the_engine_whatever_the_times(tmp_path: Path) -> None:
    result = run(tmp_path, workers=3, algorithm="ssgd")
    engine = train(TrainConfig(algorithm="ssgd", workers=3, updates=20, lookahead="off"), 0)
    assert np.reshape(losses(result), (20, 3)).sum(1) == pytest.approx(
        np.reshape(losses(engine), (20, 3)).sum(1), rel=1e-5
    )
    assert result.summary.mean_staleness == 0


def test_pushes_of_several_workers_share_the_link_and_tensors_differ_in_staleness(
    tmp_path: Path,
) -> None:
    result = run(tmp_path, workers=4, bandwidth="1MB/s", updates=80)
    staleness = result.summary.staleness
    assert staleness is not None
    assert list(staleness) == list(TENSORS)
    assert all(0 < each.mean <= 4 for each in staleness.values() if each.mean is not None)
    assert result.schedule is not None
    assert result.schedule.updates["time"].max() <= result.summary.virtual_time * 1e12 + 1
    assert set(result.schedule.updates["worker"].tolist()) == {0, 1, 2, 3}
    again = run(tmp_path, workers=4, bandwidth="1MB/s", updates=80)
    assert losses(again) == losses(result)


def test_throughput_is_what_predict_says(tmp_path: Path) -> None:
    """One profiled step, so that nothing is drawn: both doors simulate the very same."""
    profile, seconds = save_network(tmp_path, steps=1), 2.0
    links: dict[str, Any] = {"profile": profile, "bandwidth": "2MB/s", "start": "together"}
    asked = ThroughputConfig(workers=(3,), measure=seconds, repeats=2, **links)
    predicted = run_prediction(asked, 0).summary
    assert isinstance(predicted, ThroughputSummary)
    after_start = predicted.throughput[-1].after_start
    assert after_start is not None
    config = ProfileTrainConfig(workers=3, until=seconds, lookahead="off", **links)
    schedule = run_scheduled(config, 5).schedule
    assert schedule is not None
    ends = [schedule.steps["end"][schedule.steps["worker"] == worker] for worker in range(3)]
    rate = sum((len(end) - 3) / (end[-1] - end[2]) * 1e12 for end in ends)
    assert after_start.steps_per_second == pytest.approx(rate, rel=1e-9)


def test_a_run_ends_at_its_target(tmp_path: Path) -> None:
    result = run(tmp_path, workers=2, until="accuracy >= 0.5", updates=500, evaluate_every=5)
    summary = result.summary
    assert summary.status == "done"
    assert summary.reached_at is not None
    assert summary.reached_at < summary.virtual_time
    assert summary.reached_updates is not None
    assert summary.updates == summary.reached_updates + 10  # held for two further evaluations


def test_a_what_if_stands_beside_the_unchanged_run(tmp_path: Path) -> None:
    result = run(tmp_path, workers=2, what_if=["links: bandwidth 4x slower"])
    assert result.summary.unchanged is not None
    assert result.summary.virtual_time > 1.5 * result.summary.unchanged.virtual_time


@pytest.mark.parametrize("algorithm", ["easgd", "ad-psgd", "local-sgd", "fedbuff(steps=2)"])
def test_what_decides_by_value_runs_coupled_and_says_so(tmp_path: Path, algorithm: str) -> None:
    result = run(tmp_path, workers=2, algorithm=algorithm, updates=4)
    assert result.summary.updates == 4
    assert "coupled" in result.summary.durations["schedule"]
    assert result.summary.virtual_time >= 2 * (FORWARD + BACKWARD)


def test_the_batch_is_the_profiled_one(tmp_path: Path) -> None:
    assert run(tmp_path, workers=1).summary.examples == 20 * 32
    with pytest.raises(InputError, match="has 32 examples, not 16"):
        run(tmp_path, workers=1, batch=16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"compute": "20ms"}, "cannot be combined with"),
        ({"stagger": "1ms"}, "stagger: has no effect"),
        ({"db": "x.db"}, "cannot be combined with"),
        ({"algorithm": "easgd", "start": "staggered"}, "start: has no effect"),
        ({"strategy": "ddp"}, "cannot be combined with"),
        ({"timing_only": True}, "cannot be combined with"),
    ],
)
def test_what_has_no_effect_beside_a_profile_is_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        KINDS["train"].configured({"profile": save_network(tmp_path), **arguments}, "test")


def test_iterations_follow_each_other() -> None:
    blocks = iterations(3, 0.5)
    whole = join_schedules([next(blocks), next(blocks)])
    assert (whole.staleness == 0).all()
    assert whole.updates["version"].tolist() == sorted(whole.updates["version"].tolist())
    last = whole.updates[-1]
    assert last["time"] == int(last["version"]) * 500_000_000_000
    assert np.array_equal(whole.reads["time"], whole.steps["begin"])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Timings of a machine that takes 1 ms for every op of the small network."""
    graph = capture(CaptureOptions(model="mlp", batch=32, shape=(1, 8, 8), classes=10))
    machine = Environment("cpu", "Old Chip 7", "torch 2.13.0", 1, "malloc pinned", "flushed")
    length = Spread(10, 1e-3, 0.0, 1e-3, 1e-3, 1e-3, 1e-3)
    path = tmp_path_factory.mktemp("timings") / "ops.db"
    with ProfileDatabase.open(path, create=True) as held:
        held.add(OpTiming(op, machine, "cold", length, 1e-3) for op in graph.ops)
    return path


def test_updates_of_a_strategy_come_with_the_iterations_that_are_predicted(database: Path) -> None:
    links = {"bandwidth": "1MB/s", "db": database, "hardware": "Old Chip"}
    config = StrategyTrainConfig(strategy="ddp", workers=3, updates=20, lookahead="off", **links)
    result = run_scheduled(config, 4)
    asked = PredictConfig(
        model="mlp", batch=32, shape=(1, 8, 8), strategy="ddp", workers=(3,), **links
    )
    predicted = run_prediction(asked, 4).summary
    assert isinstance(predicted, JobSummary)
    # 19.2 kB of gradients take each rank 2 * 2 / 3 of that time at 1 MB/s, at least
    assert predicted.iteration_time > 4 / 3 * SIZE / 1e6
    assert result.summary.virtual_time == pytest.approx(20 * predicted.iteration_time, rel=1e-9)
    assert result.summary.topology == "all-reduce"
    assert result.summary.servers == 0
    engine = train(TrainConfig(algorithm="ssgd", workers=3, updates=20, lookahead="off"), 4)
    assert np.reshape(losses(result), (20, 3)).sum(1) == pytest.approx(
        np.reshape(losses(engine), (20, 3)).sum(1), rel=1e-5
    )


@pytest.mark.parametrize("strategy", ["ps-async", "dp=1, pp=3", "auto", " auto "])
def test_what_is_no_data_parallelism_is_refused(database: Path, strategy: str) -> None:
    links = {"bandwidth": "1MB/s", "db": database, "hardware": "Old Chip"}
    with pytest.raises(InputError, match="give ddp, fsdp, zero1 or ps"):
        run_scheduled(StrategyTrainConfig(strategy=strategy, workers=3, **links))


def test_a_strategy_is_synchronous() -> None:
    assert str(StrategyTrainConfig(strategy="ddp").algorithm) == "ssgd"
    for arguments, message in (
        ({"algorithm": "asgd"}, "the workers of a strategy are synchronous, not asgd"),
        ({"compute": "20ms"}, "compute: cannot be combined with"),
        ({"start": "staggered"}, "cannot be combined with"),
        ({"fault": "slow(2x)"}, "cannot be combined with"),
    ):
        with pytest.raises(ValueError, match=message):
            KINDS["train"].configured({"strategy": "ddp", **arguments}, "test")
