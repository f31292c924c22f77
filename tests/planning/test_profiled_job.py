"""A profiled job as training sees it: its tensors, and schedules that have no end."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import profiled_network as profiled_network_module
import pytest
from profiled_network import BACKWARD, FORWARD, TENSORS, profiled_network, save_network

import paracosm.planning.job as job_module
from paracosm.errors import InputError
from paracosm.planning.config import PlanConfig
from paracosm.planning.job import (
    ProfiledJob,
    assumed_links,
    check_model,
    check_tensors,
    profiled_job,
)
from paracosm.prediction.parameter_servers.throughput import begins_of
from paracosm.simulation.rules import Rule, asgd, ssgd, ssp
from paracosm.simulation.schedule import Schedule, join_schedules


def job_of(folder: Path, **arguments: Any) -> tuple[PlanConfig, ProfiledJob]:
    arguments = {"workers": "1,2,4", "target": "loss <= 0.1", "bandwidth": "10MB/s"} | arguments
    config = PlanConfig(profile=save_network(folder), **arguments)
    assert config.workers is not None
    return config, profiled_job(config, config.workers)


def first(job: ProfiledJob, workers: int, rule: Rule, seconds: float) -> Schedule:
    """Return what happens in the first seconds."""
    end = int(seconds * 1e12)
    blocks = takewhile(lambda block: block.reads["time"][0] < end, job.schedule(workers, rule, 0))
    whole = join_schedules(blocks)
    return Schedule(
        whole.reads[whole.reads["time"] < end],
        whole.updates[whole.updates["time"] < end],
        whole.steps[whole.steps["end"] < end],
        *(end, 0, {}, whole.tensors),
    )


def test_a_step_of_one_worker_by_hand(tmp_path: Path) -> None:
    _, job = job_of(tmp_path)
    assert job.tensors == tuple(TENSORS)
    found = first(job, 1, asgd(), 1.0)
    size = 4 * sum(TENSORS.values())
    lengths = np.diff(found.steps["end"][:8]) / 1e12
    steps = 2 * size / 10e6 + (FORWARD + BACKWARD) * (1 + 0.002 * np.arange(8))
    assert set(np.round(lengths, 9)) <= set(np.round(steps, 9))
    assert (found.staleness == 0).all()


@pytest.mark.parametrize("rule", [asgd(), ssgd(4), ssp(1)])
def test_a_schedule_goes_on_as_if_all_its_steps_had_been_drawn_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule
) -> None:
    _, job = job_of(tmp_path)
    whole = first(job, 4, rule, 4.0)
    monkeypatch.setattr(job_module, "FIRST_STEPS", 3)
    monkeypatch.setattr(job_module, "FACTOR", 2)
    pieces = first(job, 4, rule, 4.0)
    assert len(whole.updates) > 4 * 4 * 10
    for name in ("reads", "updates", "steps"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name)), name


def test_workers_may_begin_one_after_the_other(tmp_path: Path) -> None:
    _, job = job_of(tmp_path, start="staggered", stagger="7ms")
    assert begins_of(job.target, 3, 0).tolist() == pytest.approx([0.0, 0.007, 0.014])
    reads = first(job, 4, asgd(), 0.1).reads
    begins = [reads["time"][reads["worker"] == worker].min() for worker in range(4)]
    assert begins == [7_000_000_000 * worker for worker in range(4)]
    _, even = job_of(tmp_path, start="staggered")
    step = 2 * 4 * sum(TENSORS.values()) / 10e6 + 1.007 * (FORWARD + BACKWARD)
    assert begins_of(even.target, 4, 0)[1] == pytest.approx(step / 4, rel=0.01)


def test_the_same_seed_draws_the_same_steps_for_any_number_of_workers(tmp_path: Path) -> None:
    _, job = job_of(tmp_path)
    wide = job.target.drawn(4, 20, 5)
    assert np.array_equal(job.target.drawn(2, 10, 5), wide[:2, :10])
    assert not np.array_equal(job.target.drawn(4, 20, 6), wide)


@pytest.mark.parametrize(
    ("links", "seconds", "assumed"),
    [
        # A step computes for 30 ms and sends its 19,240 bytes twice, in 38 ms at 1 MB/s: in 77 ms
        # at half of that. 50 us of latency, twice a step, are nothing beside it.
        ({"bandwidth": None}, 0.01, {"bandwidth": "assumed: links of 8 Mbit/s, as profiled"}),
        ({"bandwidth": "10MB/s"}, 0.01, {}),
        # They are a quarter of a step that takes 300 us to compute and 38 us to send.
        ({"bandwidth": "1GB/s"}, 1e-4, {"latency": "assumed: links without latency"}),
        ({"bandwidth": "1GB/s", "latency": "0s"}, 1e-4, {}),
    ],
)
def test_links_are_said_to_be_assumed_where_they_move_the_rate_by_more_than_a_tenth(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    links: dict[str, Any],
    seconds: float,
    assumed: dict[str, str],
) -> None:
    monkeypatch.setattr(profiled_network_module, "FORWARD", seconds)
    monkeypatch.setattr(profiled_network_module, "BACKWARD", 2 * seconds)
    config, job = job_of(tmp_path, workers="1", **links)
    assert assumed_links(config, job, 1, asgd(), 0) == assumed
    assert assumed_links(config, job, 1, None, 0) == assumed  # of a rule that depends on values


def test_a_profile_of_another_model_is_refused_at_the_first_difference(tmp_path: Path) -> None:
    config, job = job_of(tmp_path)
    for seed in (0, 2**64 - 1):
        check_model(job, config.learning(), seed)
    for model, message in (
        (
            "mlp(hidden=32)",
            "layers.0.weight has 16,384 bytes, but 8,192 in mlp(hidden=32) on digits",
        ),
        (
            "mlp(layers=2)",
            "layers.2.weight has 2,560 bytes, but 16,384 in mlp(layers=2) on digits",
        ),
    ):
        with pytest.raises(InputError) as caught:
            check_model(job, config.learning() | {"model": model}, 0)
        assert message in str(caught.value)
    with pytest.raises(InputError, match="the tensor b of m is missing; it has a, c: profile"):
        check_tensors({"a": 4, "c": 8}, {"a": 4, "b": 8}, "m")
    with pytest.raises(InputError, match="the tensor c is not part of m"):
        check_tensors({"a": 4, "c": 8}, {"a": 4}, "m")


def test_a_profile_without_a_bandwidth_needs_one(tmp_path: Path) -> None:
    config = PlanConfig(profile=save_network(tmp_path), workers=2, target="loss <= 0.1")
    assert (
        profiled_job(config, (2,)).cluster.topology.link.bandwidth == profiled_network().bandwidth
    )
