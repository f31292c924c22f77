"""One job through every command that can say it: the same steps/s, to a relative 1e-9.

Asynchronous SGD with one server: every step computes for c = 100 ms, pushes 12.5 MB and gets 12.5
MB back; a message takes s = 100 ms of a port of 1 Gbit/s. W workers begin together, and every
duration is constant, so that steps/s follow by hand:

- fair: they stay together, and share the server's ports: W steps in c + W s + W s.
- serial: messages take turns; each worker has a step in c + 2 s, or the port is never idle:
  W / (c + 2 s), at most 1 / s;
- packets with a quantum of a whole message: the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from one_step import write_profile

from paracosm.cli import main
from paracosm.graphs import Node, Op, build_graph, save_graph

Capture = pytest.CaptureFixture[str]

LINK = ("--bandwidth", "1Gbit/s")
SIZE = 12_500_000
WORKERS = (1, 2, 4, 8)
EXPECTED = {
    ("fair", 1): 1 / 0.3,
    ("fair", 2): 2 / 0.5,
    ("fair", 4): 4 / 0.9,
    ("fair", 8): 8 / 1.7,
    ("serial", 1): 1 / 0.3,
    ("serial", 2): 2 / 0.3,
    ("serial", 4): 10.0,
    ("serial", 8): 10.0,
    ("packets(12.5MB)", 1): 1 / 0.3,
    ("packets(12.5MB)", 2): 2 / 0.3,
    ("packets(12.5MB)", 4): 10.0,
    ("packets(12.5MB)", 8): 10.0,
}


# As in test_cluster_keys: the kernels of jobs are compiled for packets when slow only.
JOBS = [
    pytest.param(cell, marks=pytest.mark.slow if "packets" in cell[0] else ()) for cell in EXPECTED
]


def named(cell: tuple[str, int]) -> str:
    return f"{cell[0]}-{cell[1]}"


@pytest.fixture(params=EXPECTED, ids=named)
def cell(request: pytest.FixtureRequest) -> tuple[str, int]:
    return request.param


def run(capsys: Capture, *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    code = main([str(argument) for argument in (*arguments, "--json")])
    out, err = capsys.readouterr()
    assert code == 0, err
    summary: dict[str, Any] = json.loads(out)
    return summary


@pytest.mark.parametrize("engine", [False, True], ids=["compiled", "engine"])
def test_train(cell: tuple[str, int], engine: bool, capsys: Capture) -> None:
    """Between 10 and 30 updates of each worker."""
    sharing, workers = cell
    how = "--timeline" if engine else "--no-timeline"
    job = ("--algorithm", "asgd", "--compute", "100ms", "--message-size", "12.5MB")
    ends = [
        run(
            *(capsys, "train", *job, *LINK, "--sharing", sharing, "--workers", workers),
            *("--updates", count * workers, "--timing-only", how),
        )["virtual_time"]
        for count in (10, 30)
    ]
    rate = 20 * workers / (ends[1] - ends[0])
    assert rate == pytest.approx(EXPECTED[cell], rel=1e-9)


@pytest.mark.parametrize("cell", JOBS, indirect=True, ids=named)
def test_strategy(
    cell: tuple[str, int], capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between 10 and 30 iterations."""
    monkeypatch.chdir(tmp_path)
    sharing, workers = cell
    gradient = ((SIZE, -1),)
    nodes = [
        Node(0, Op("matmul"), phase="forward", duration=0.05),
        Node(1, Op("grad"), phase="backward", dependencies=(0,), duration=0.05, allocates=gradient),
    ]
    save_graph(build_graph(nodes, provenance={"examples": 1}), tmp_path / "step.graph")
    ends = [
        count
        * run(
            *(capsys, "predict", "--graph", tmp_path / "step.graph", *LINK, "--sharing", sharing),
            *("--workers", workers, "--strategy", f"ps-async, iterations={count}, bucket=1GB"),
        )["iteration_time"]
        for count in (10, 30)
    ]
    rate = 20 * workers / (ends[1] - ends[0])
    assert rate == pytest.approx(EXPECTED[cell], rel=1e-9)


@pytest.mark.parametrize("cell", JOBS, indirect=True, ids=named)
def test_job_profile(cell: tuple[str, int], capsys: Capture, tmp_path: Path) -> None:
    """A profile of one step: pull, compute, push, update, measured on another link."""
    sharing, workers = cell
    profile = write_profile(tmp_path, SIZE)
    summary = run(
        *(capsys, "predict", profile, *LINK, "--sharing", sharing),
        *("--workers", workers, "--no-flow-control", "--start", "together", "--steps", 200),
    )
    found = summary["throughput"][-1]["after_start"]["steps_per_second"]
    assert found == pytest.approx(EXPECTED[cell], rel=1e-9)
