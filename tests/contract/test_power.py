"""The power of nodes through every command: joules by hand, or a refusal by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.cluster.description import cluster_from_mapping, describe_cluster
from paracosm.emulation.config import EmulateConfig
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph, save_graph
from paracosm.planning.train_config import ProfileTrainConfig
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.parameter_servers.config import ThroughputConfig
from paracosm.prediction.run import run_prediction
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.file import save_job_profile
from paracosm.report.runs import answer
from paracosm.training.config import TrainConfig
from paracosm.training.run import train

POWER = {"busy": "250 W", "idle": "60 W", "off": "5 W"}
NODE = {"count": 2, "power": POWER}
STAR = {
    "topology": "star",
    "workers": NODE,
    "servers": {"count": 1, "power": {"busy": 100, "idle": 40}},
    "links": {"default": {"bandwidth": "1MB/s"}},
}


@pytest.mark.parametrize("engine", [False, True], ids=["compiled", "engine"])
def test_train(engine: bool) -> None:
    """Synchronous steps of 100 ms of computing, 200 ms of two pushes at a port, 200 ms of pulls."""
    given: dict[str, Any] = {
        "algorithm": "ssgd", "compute": "100ms", "message_size": "100kB", "updates": 4,
        "timing_only": True, "cluster": STAR,
    }  # fmt: skip
    summary = train(TrainConfig(**given, timeline=engine)).summary
    time, computed = summary.virtual_time, 4 * 0.1
    by_hand = 2 * (250 * computed + 60 * (time - computed)) + 40 * time
    assert summary.energy == pytest.approx(by_hand, rel=1e-9)
    assert " J" in answer(summary)


def test_workers_that_are_away_are_off() -> None:
    given: dict[str, Any] = {
        "algorithm": "asgd", "compute": "1s", "message_size": "1kB", "until": "40s",
        "timing_only": True, "cluster": {**STAR, "links": {}},
        "fault": "stop(10s) on worker 1 at 10.5s",
    }  # fmt: skip
    summary = train(TrainConfig(**given)).summary
    # Worker 1 is off for 10 s; before and after it computes all the time.
    by_hand = 250 * (40 + 30) + 5 * 10 + 40 * 40
    assert summary.energy == pytest.approx(by_hand, rel=1e-6)


def test_predict_of_a_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 ms of computing, then an all-reduce: waiting draws what idle nodes draw."""
    monkeypatch.chdir(tmp_path)
    gradient = ((100_000, -1),)
    nodes = [
        Node(0, Op("matmul"), phase="forward", duration=0.05),
        Node(1, Op("grad"), phase="backward", dependencies=(0,), duration=0.05, allocates=gradient),
    ]
    save_graph(build_graph(nodes, provenance={"examples": 1}), tmp_path / "step.graph")
    switch = {"topology": "switch", "workers": NODE, "links": STAR["links"]}
    config = PredictConfig(graph=tmp_path / "step.graph", strategy="ddp", cluster=switch)
    summary = run_prediction(config, 0).summary
    time = summary.iteration_time
    assert time > 0.15
    assert summary.throughput[-1].energy == pytest.approx(2 * (250 * 0.1 + 60 * (time - 0.1)))
    assert "An iteration takes" in answer(summary)


def test_predict_of_a_profile(tmp_path: Path) -> None:
    """One worker that never waits for another: 100 ms of computing, and messages of 100 kB."""
    profile = JobProfile(
        names=("compute", "push", "update", "pull"),
        kinds=("MatMul", "Recv", "Apply", "Recv"),
        resource=np.array([WORKER, UPLINK, SERVER, DOWNLINK], np.int8),
        server=np.zeros(4, np.int64),
        size=np.array([0, 100_000, 0, 100_000]),
        first_dependency=np.array([0, 0, 1, 2, 3]),
        dependencies=np.array([0, 1, 2]),
        begin=np.array([[0.0, 0.1, 1.1, 1.3]]),
        end=np.array([[0.1, 1.1, 1.3, 2.3]]),
        step_begin=np.array([0.0]),
        step_end=np.array([2.3]),
    )
    path = tmp_path / "job.profile"
    save_job_profile(profile, path)
    one = {**STAR, "workers": {"count": 1, "power": POWER}}
    summary = run_prediction(ThroughputConfig(profile=path, cluster=one), 0).summary
    step = 1 / summary.steps_per_second
    # 200 ms of the server's time are updates.
    by_hand = 250 * 0.1 + 60 * (step - 0.1) + 100 * 0.2 + 40 * (step - 0.2)
    assert summary.throughput[-1].energy == pytest.approx(by_hand, rel=1e-6)
    assert "J a step" in answer(summary)


def test_those_that_find_no_energy_refuse_it() -> None:
    cluster = {"topology": "switch", "workers": NODE}
    with pytest.raises(InputError, match="power: emulate does not compute energy"):
        EmulateConfig(world_size=2, cluster=cluster).resolve_cluster()
    with pytest.raises(InputError, match="power: train over a profile or a strategy does not"):
        ProfileTrainConfig(profile="job.profile", cluster=STAR).check()


def test_the_summary_of_the_cluster_names_the_power() -> None:
    cluster = cluster_from_mapping(STAR)
    assert describe_cluster(cluster)["power"] == (
        "busy 250 W, idle 60 W, off 5 W; busy 100 W, idle 40 W, off 0 W"
    )
    assert cluster.energy(10, {"worker0": 4, "server0": 10}, {"worker1": 6}) == (
        (4 * 250 + 6 * 60) + (4 * 60 + 6 * 5) + 10 * 100
    )
    with pytest.raises(InputError, match="off <= idle"):
        cluster_from_mapping({**STAR, "workers": {"power": {"busy": 1, "idle": 2}}})
