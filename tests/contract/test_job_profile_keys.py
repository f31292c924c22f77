"""Every key of the cluster file in a prediction from a job profile: a rate by hand, or a refusal.

The job of `one_step`, again and again: steps/s of two workers that begin together, without their
first steps. Where both stay in step, they have two steps in the time of the first one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from one_step import CLUSTERS, write_profile

from paracosm.cli import main

Capture = pytest.CaptureFixture[str]
SIZE = 100_000

PERIOD = {
    "fair": 0.52,
    "default": 0.52,
    "bandwidth": 0.1 + 0.2 + 0.02,
    "latency": 0.1 + 0.4 + 0.04,
    "fair overhead": 0.1 + 4 * 0.12 + 0.02,
    "fair held": 0.1 + 4 * 0.11,
    "fair half": 0.52,
    # From the second step on b is 100 ms behind a, and neither waits for the other.
    "serial": 0.1 + 2 * 0.1 + 0.02,
    "serial overhead": 0.1 + 2 * 0.12 + 0.02,
    "serial held": 0.1 + 2 * 0.11,
    # Push a, push b, answer a, answer b, one after the other; a computes while b gets its answer,
    # and is 10 ms later than that (latency).
    "serial half": 4 * 0.1 + 0.01,
    "serial half held": 4 * 0.11,
}
"""Seconds of a step of either worker, by the cluster."""

REFUSED = {
    "placement": "servers live on nodes of workers",
    "serial placement": "servers live on nodes of workers",
    "fair hierarchical": "not on a hierarchical",
    "serial hierarchical": "not on a hierarchical",
}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return write_profile(tmp_path, SIZE)


def predict(profile: Path, name: str) -> int:
    path = profile.parent / "cluster.yaml"
    path.write_text(yaml.safe_dump(CLUSTERS[name]))
    few = ("--steps", "100", "--repeats", "2", "--start", "together", "--no-flow-control")
    return main(["predict", str(profile), "--cluster", str(path), *few, "--json"])


@pytest.mark.parametrize("name", PERIOD)
def test_steps_of_workers_that_begin_together(name: str, profile: Path, capsys: Capture) -> None:
    assert predict(profile, name) == 0
    row = json.loads(capsys.readouterr().out)["throughput"][-1]
    assert row["after_start"]["steps_per_second"] == pytest.approx(2 / PERIOD[name], rel=1e-9)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused(name: str, profile: Path, capsys: Capture) -> None:
    assert predict(profile, name) == 2
    said = capsys.readouterr().err
    assert REFUSED[name] in said
    assert said.count("\n") == 1
