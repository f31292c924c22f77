"""CUDA graphs and PyTorch's own pipelines on a device that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_runs import ON_H100, SCRIPTS, emulate, moved, products

from paracosm.emulation.device.recording import COPY, GRAPH, OP, Recording, load_recording


def requests(recording: Recording) -> list[tuple[int, int]]:
    """Return kind and number of the requests of the last iteration."""
    last = recording.iteration(len(recording.steps) - 1)
    return list(zip(last.kind.tolist(), last.number.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["graph", "callables", "compiled"])
def test_cuda_graphs_are_launched_once(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same products as without, and no work of the host for what a graph holds."""
    found = {}
    for each in ("plain", how):
        command = (*ON_H100, "--world-size", 1, "--launch", "1ms", "--out", tmp_path / each)
        found[each] = emulate(capsys, *command, SCRIPTS / "graphed.py", each)
    plain, graphed = (load_recording(tmp_path / each / "device.parquet") for each in found)
    assert products(graphed) == products(plain)
    rows = requests(graphed)
    graphs = [number for kind, number in rows if kind == GRAPH]
    ops = sum(kind in (OP, COPY) for kind, _ in rows)
    if how == "graph":  # a copy of the inputs, and all the rest
        assert len(graphs) == 1
        assert ops == graphs[0] + 1
    else:  # forward and backward
        assert len(graphs) == 2
    launches = ops - sum(graphs) + len(graphs)
    assert found[how]["iteration_time"] == pytest.approx(launches * 1e-3, rel=0.05)
    assert found["plain"]["iteration_time"] > 2 * found[how]["iteration_time"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "stages"),
    [("ScheduleGPipe", 1), ("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2)],
)
def test_stages_of_pytorch_are_all_recorded(
    schedule: str, stages: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four micro-batches of 4 x 32 numbers between two ranks, on each of 2 or 4 stages."""
    folder = tmp_path / "run"
    script = SCRIPTS / "stages.py"
    found = emulate(capsys, *ON_H100, "--world-size", 2, "--out", folder, script, schedule)
    assert found["rank"] == [0, 1]
    sent = {"device.parquet": 0, "device1.parquet": 0}
    for name in sent:
        recording = load_recording(folder / name)
        sizes = moved(recording, "send")
        assert set(sizes) == {4 * 4 * 32}
        assert products(recording) > 0
        sent[name] = len(sizes)
    # Between neighbouring stages an activation and a gradient for each micro-batch.
    assert sum(sent.values()) == 2 * 4 * (2 * stages - 1)
    assert bool(found["assumed"]) == (stages > 1)  # the shape of what the second rank sends


@pytest.mark.slow
def test_a_stage_that_is_recorded_first_waits_for_those_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = (*ON_H100, "--world-size", 2, "--rank", 1)
    found = emulate(capsys, *command, SCRIPTS / "stages.py", "Schedule1F1B")
    assert found["rank"] == [1, 0]
    assert not found["assumed"]
