"""A graph that has all durations needs no database."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.graphs import Node, Op, build_graph, save_graph


def written(folder: Path, last: float) -> Path:
    nodes = [
        Node(0, Op("matmul"), phase="forward", duration=0.002),
        Node(1, Op("view"), phase="forward", resource="host", dependencies=(0,)),
        Node(
            2,
            Op("matmul_grad"),
            phase="backward",
            dependencies=(0,),
            duration=0.004,
            allocates=((10**6, -1),),
        ),
        Node(3, Op("step"), phase="optimizer", dependencies=(2,), duration=last),
    ]
    path = folder / "timed.graph"
    save_graph(build_graph(nodes, provenance={"examples": 8}), path)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict, str]:
    code = main(["predict", *arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_the_iteration_is_that_of_the_durations_in_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, summary, _ = run(capsys, "--graph", str(written(tmp_path, 0.001)))
    assert code == 0
    assert summary["iteration_time"] == pytest.approx(0.007)
    assert summary["coverage"] == {"recorded": 1.0}
    assert summary["environment"] == ""


def test_it_scales_over_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One megabyte by a ring of two workers at 8 Mbyte/s: twice half of it, 0.125 s."""
    monkeypatch.chdir(tmp_path)
    flags = ["--strategy", "ddp, all_reduce=ring", "--workers", "2", "--bandwidth", "8MB/s"]
    code, summary, _ = run(capsys, "--graph", str(written(tmp_path, 0.001)), *flags)
    assert code == 0
    assert summary["iteration_time"] == pytest.approx(0.007 + 0.125)


def test_a_graph_that_lacks_a_duration_asks_for_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "--graph", str(written(tmp_path, math.nan)))
    assert code == 2
    assert "profiles.db: no such database" in err


def test_its_run_folder_can_be_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph, change = str(written(tmp_path, 0.001)), "link 0-1: bandwidth 2x slower"
    flags = ["--graph", graph, "--workers", "4", "--bandwidth", "1Gbit/s", "--what-if", change]
    code, first, _ = run(capsys, *flags, "--out", "run")
    assert code == 0
    assert first["cluster"]["links of their own"]["worker0 - worker1"]["bandwidth"] == "500 Mbit/s"
    code, again, _ = run(capsys, "run/study.yaml")
    assert code == 0
    assert again == first
