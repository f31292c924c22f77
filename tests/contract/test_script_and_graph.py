"""The same job by its script and by the graph that is captured of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paracosm.cli.app import main
from paracosm.graphs import load_graph
from paracosm.jobs.strategies.layers import layers_of

SCRIPT = Path(__file__).parents[1] / "emulation" / "device" / "scripts" / "gpt_ddp.py"
LAYER = 12 * 512 * 512 + 13 * 512  # matrices; biases and norms
PARAMETERS = 2 * 8192 * 512 + 2 * LAYER
HOST = ("--launch", "0us")  # a small model is bound by its host, not by what it computes


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("1",), ("2",), ("1", "buckets")])
def test_computing_and_gradients_are_those_of_the_script(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["--hardware", "dgx-h100", "--json", *HOST]
    run = ["emulate", *job, "--world-size", "16", "--output", "none", str(SCRIPT), *arguments]
    assert main(run) == 0
    recorded = json.loads(capsys.readouterr().out)
    file = tmp_path / "script.graph"
    capture = ["graph", "capture", "--script", str(SCRIPT), "--hardware", "h100-sxm"]
    assert main([*capture, "--out", str(file), "--quiet", "--", *arguments]) == 0
    graph = load_graph(file)
    assert graph.resident["parameters"] == 4 * PARAMETERS
    assert graph.provenance["tokens"] == 8 * 512
    assert graph.provenance["microbatches"] == int(arguments[0])
    layers, storages = layers_of(graph), graph.storages
    assert layers.names == ("tokens", "blocks.0", "blocks.1", "head")
    gradients = layers.gradient_bytes(storages.first, storages.last, storages.size)
    assert gradients.sum() == recorded["collectives"]["all_reduce"]["bytes"] == 4 * PARAMETERS
    strategy = f"ddp, microbatches={arguments[0]}"
    predict = ["predict", "--graph", str(file), *job, "--workers", "16", "--strategy", strategy]
    assert main(predict) == 0
    (row,) = json.loads(capsys.readouterr().out)["throughput"]
    computes = recorded["breakdown"]["compute"]
    assert row["breakdown"]["compute"] == pytest.approx(computes, rel=0.05)
    assert row["iteration_time"] == pytest.approx(recorded["iteration_time"], rel=0.1)
