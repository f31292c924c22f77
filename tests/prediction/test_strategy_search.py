"""The search for a strategy: what it considers, what it may leave out, what it finds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paracosm.cluster.hardware import Hardware
from paracosm.errors import InputError
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.planning.strategy_plan import StrategyPlanConfig, run_strategy_plan
from paracosm.prediction.candidates import Candidate, candidates
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.job import predict_job
from paracosm.prediction.run import run_prediction
from paracosm.prediction.strategy_bounds import RECOMPUTED, Network
from paracosm.prediction.strategy_search import fastest, search_strategies, splits_of


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def asked(**options: Any) -> PredictConfig:
    usual = {"model": "opt-1.3b", "hardware": "a100-sxm-80gb", "workers": 8, "strategy": "auto"}
    return PredictConfig(**{**usual, **options})


def test_candidates_by_hand() -> None:
    """Two workers of one machine, 4 examples, 12 layers and 12 heads: dp, cp, pp or tp of 2.

    Of replicas with ZeRO 0 to 3: micro-batches of 1 and 2 with dp=2, of 1 with cp=2, where a group
    of the machine is all; without, 1, 2 and 4 examples with pp=2 and with tp=2.
    """
    config = asked(model="mpt-125m", workers=2)
    assert config.architecture is not None
    found = list(candidates(config.architecture, 2, 2, 4))
    sizes = [(s.data, s.context, s.pipeline, s.tensor) for s in (c.strategy for c in found)]
    assert sizes.count((2, 1, 1, 1)) == 2 * 4
    assert sizes.count((1, 2, 1, 1)) == 4
    assert sizes.count((1, 1, 2, 1)) == sizes.count((1, 1, 1, 2)) == 3
    assert len(found) == 18
    assert {each.examples for each in found} == {4}


@pytest.mark.parametrize(
    "workers", [2, *(pytest.param(workers, marks=pytest.mark.slow) for workers in (4, 8))]
)
def test_the_bounded_search_finds_what_trying_all_finds(workers: int) -> None:
    """No bound is above what is predicted, in time or memory; the best of all is the same."""
    config = asked(model="mpt-125m", shape="512")
    cluster, model = config.resolve_cluster(workers), config.architecture
    assert model is not None
    splits = splits_of(config, cluster, 0)
    search = search_strategies(model, cluster, workers, splits)
    network, best = Network(cluster), math.inf
    for candidate in candidates(model, workers, workers, workers):
        for what in RECOMPUTED:
            strategy = replace(candidate.strategy, recompute=what)
            split = splits(Candidate(strategy, candidate.micro_batch))
            job = predict_job(split.replica, cluster, strategy)
            assert split.bound(strategy, network, 1.0) <= job.iteration_time * (1 + 1e-9)
            assert job.peak_memory is not None
            assert split.least_memory(strategy) <= job.peak_memory * (1 + 1e-9)
            best = min(best, job.iteration_time / candidate.examples)
    assert search.complete
    assert search.predicted < search.candidates / 2
    assert search.ranked[0].per_example == pytest.approx(best, rel=1e-6)


def test_a_model_that_fits_on_a_device_is_not_divided() -> None:
    summary = run_prediction(asked(model="mpt-125m", workers=4), seed=0).summary
    assert summary.search.ranked[0].strategy == summary.strategy
    assert "tp" not in summary.strategy
    assert "pp" not in summary.strategy
    assert summary.fits


def test_one_that_does_not_is_sharded_and_predict_says_the_same_of_what_is_chosen() -> None:
    """Llama 8B has 16 bytes a parameter of states: 128 GB, of 80 GiB on each of 8 devices."""
    found = run_prediction(asked(model="llama-8b", hardware="h100-sxm"), seed=0).summary
    best = found.search.ranked[0]
    assert "zero" in best.strategy
    again = PredictConfig(
        model="llama-8b",
        hardware="h100-sxm",
        workers=8,
        strategy=best.strategy,
        batch=best.micro_batch,
        stack=found.stack,
    )
    same = run_prediction(again, seed=0).summary
    assert same.iteration_time == found.iteration_time == best.iteration_time
    assert same.peak_memory == found.peak_memory == best.peak_memory
    assert sum(best.causes.values()) == pytest.approx(best.iteration_time)


def test_a_name_that_is_also_a_modules_is_searched_for_by_its_sizes() -> None:
    """The strategy that is chosen takes as long again, by either name."""
    found = run_prediction(asked(model="gpt2", shape="512", workers=2), seed=0).summary
    assert found.model == "gpt2"
    best = found.search.ranked[0]
    again = PredictConfig(
        model="sizes:gpt2",
        shape="512",
        hardware="a100-sxm-80gb",
        workers=2,
        strategy=best.strategy,
        batch=best.micro_batch,
    )
    assert run_prediction(again, seed=0).summary.iteration_time == found.iteration_time
    with pytest.raises(ValueError, match=r'unknown transformer "gpt22": did you mean "gpt2"'):
        PredictConfig(model="sizes:gpt22", hardware="h100-sxm")


def test_collectives_slow_gpus_of_the_catalogue_as_was_published() -> None:
    def found(**more: Any) -> Any:
        config = PredictConfig(
            model="mpt-125m", hardware="h100-sxm", workers=2, strategy="fsdp", **more
        )
        return run_prediction(config, seed=0).summary

    published = found()
    said = published.durations["computing beside collectives"]
    assert said == "published: computing takes 1.189 times as long (Lee et al. 2025)"
    assert published.iteration_time == found(slowdown=1.189).iteration_time
    assert published.iteration_time > found(slowdown=1).iteration_time


def test_tensor_ranks_stay_in_a_machine() -> None:
    config = asked(workers=16)
    assert config.architecture is not None
    found = candidates(config.architecture, 16, 8, 64)
    assert {each.strategy.tensor for each in found} == {1, 2, 4, 8}


def test_what_fits_nowhere_is_said_with_what_it_lacks() -> None:
    config = asked(model="llama-405b", hardware="h100-sxm")
    cluster, model = config.resolve_cluster(8), config.architecture
    assert model is not None
    search = search_strategies(model, cluster, 8, splits_of(config, cluster, 0))
    with pytest.raises(InputError, match=r"the closest \(.*\) needs .* of 85.9 GB .* too much"):
        fastest(search, cluster)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "resnet50"}, "auto needs a transformer by its published sizes"),
        ({"workers": "1,2,4"}, "auto needs a single number of workers"),
        ({"workers": None}, "auto needs a number of workers"),
        ({"what_if": "workers: 4"}, "strategy auto has one number of workers: paracosm plan"),
    ],
)
def test_what_auto_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        asked(**options).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 4}, "batch: has no effect"),
        ({"strategy": "ddp", "global_batch": 4}, "global_batch: has no effect"),
    ],
)
def test_what_has_no_effect_with_and_without_auto(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asked(**options)


def test_more_workers_than_a_batch_can_use() -> None:
    config = asked(model="mpt-125m", workers=4096)
    cluster, model = config.resolve_cluster(4096), config.architecture
    assert model is not None
    with pytest.raises(InputError, match="4,096 workers are more than 1 examples x tp=4"):
        search_strategies(model, cluster, 1, splits_of(config, cluster, 0))


def test_what_no_strategy_divides_is_refused_before_a_cluster_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(Hardware, "cluster")
    with pytest.raises(InputError, match="1,000,000 workers cannot share 1,000 examples evenly"):
        asked(workers=1_000_000, global_batch=1000).check()
    plan = {"tokens": 1e9, "batch_tokens": 488 * 2048, "max_workers": 1_000_000}
    with pytest.raises(InputError, match="1,000,000 workers are more than 488 examples"):
        StrategyPlanConfig(model="opt-1.3b", hardware="a100-sxm-80gb", **plan).check()


def test_a_strategy_of_one_example_and_a_batch_that_does_not_divide() -> None:
    """488 examples on 64 replicas: 8 micro-batches each, 512, are within a tenth; 7 are not."""
    config = asked(workers=64)
    assert config.architecture is not None
    found = candidates(config.architecture, 64, 8, 488)
    alone = [c for c in found if c.strategy == Strategy(data=64, microbatches=8)]
    assert [each.examples for each in alone] == [512]


def interrupting(monkeypatch: pytest.MonkeyPatch, after: int) -> list[Strategy]:
    """Press Ctrl-C when so many strategies are predicted; return those that are, as they come."""
    seen: list[Strategy] = []

    def predicted(replica: Any, cluster: Any, strategy: Strategy) -> Any:
        if len(seen) == after:
            raise KeyboardInterrupt
        seen.append(strategy)
        return predict_job(replica, cluster, strategy)

    monkeypatch.setattr("paracosm.prediction.strategy_search.predict_job", predicted)
    return seen


def test_an_interrupted_search_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first two strategies the fastest is taken, and the run says that it was ended."""
    seen = interrupting(monkeypatch, 2)
    monkeypatch.setattr("paracosm.prediction.run.MANY", 8)
    counts: list[int] = []
    said: list[str] = []
    found = run_prediction(
        asked(model="mpt-125m"), 0, lambda done, _: counts.append(done), said.append
    ).summary
    assert found.status == "interrupted"
    assert found.search.predicted == len(found.search.ranked) == len(seen) == 2
    assert not found.search.complete
    assert counts == [1, 2]
    (sentence,) = said
    assert sentence.startswith("Searching strategies of 8 workers, which takes a minute or more: ")
    times = [each.iteration_time / each.examples for each in found.search.ranked]
    assert found.iteration_time / 8 == pytest.approx(min(times))


def test_a_search_that_is_interrupted_before_the_first_has_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupting(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        run_prediction(asked(model="mpt-125m"), 0)


def test_an_interrupted_plan_keeps_the_number_that_it_was_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupting(monkeypatch, 2)
    config = StrategyPlanConfig(
        model="mpt-125m",
        hardware="a100-sxm-80gb",
        tokens=1e9,
        batch_tokens=16384.0,
        max_workers=8,
    )
    plan = run_strategy_plan(config, 0)
    assert plan.status == "interrupted"
    assert {design.workers for design in plan.designs} == {8}
    assert len(plan.designs) == 2
