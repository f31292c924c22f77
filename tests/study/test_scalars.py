"""Scalars: read back with TensorBoard's own reader; what a client of MLflow is asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from paracosm.cli import main
from paracosm.studies import RunFolder

RELAX = ["relax", "--problem", "laplace2d:4", "--no-baseline", "--quiet"]


def scalars(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {t: [(e.wall_time, e.step, e.value) for e in events.Scalars(t)] for t in tags}


def test_events_hold_every_metric_over_its_steps(tmp_path: Path) -> None:
    out, board = tmp_path / "out", tmp_path / "board"
    flags = [*RELAX, "--out", str(out), "--tensorboard", str(board)]
    assert main(flags) == 0
    found = scalars(board)
    rows = RunFolder.open(out).metrics().to_pylist()
    tags = {f"{row['name']}/{row['node']}".rstrip("/") for row in rows}
    assert found.keys() == tags
    assert "residual/observer" in tags
    residuals = [row for row in rows if row["name"] == "residual"]
    assert [step for _, step, _ in found["residual/observer"]] == [row["step"] for row in residuals]
    for (time, _, value), row in zip(found["residual/observer"], residuals, strict=True):
        assert time == row["virtual_time"]
        assert value == pytest.approx(row["value"], rel=1e-6)  # events hold single precision
    assert main([*flags, "--force"]) == 0
    assert scalars(board) == found


def test_a_sweep_has_a_folder_for_each_run(tmp_path: Path) -> None:
    out, board = tmp_path / "out", tmp_path / "board"
    flags = [*RELAX, "--processors", "1,2", "--out", str(out), "--tensorboard", str(board)]
    assert main(flags) == 0
    assert {path.name for path in board.iterdir()} == {"processors=1", "processors=2"}
    assert all(scalars(each)["residual/observer"] for each in board.iterdir())


def test_what_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = tmp_path / "board"
    assert main([*RELAX, "--tensorboard", str(board)]) == 2
    assert "--tensorboard needs a run folder: give --out" in capsys.readouterr().err
    board.mkdir()
    (board / "events.out.tfevents.1").touch()
    flags = [*RELAX, "--out", str(tmp_path / "out"), "--tensorboard", str(board)]
    assert main(flags) == 2
    assert "has scalars of another run" in capsys.readouterr().err
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("gone")
    for place, named in (("file", "file"), ("file/board", "file"), ("link", "link")):
        assert main([*flags[:-1], str(tmp_path / place)]) == 2
        assert f"--tensorboard: {tmp_path / named} is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert main(flags) == 2
    assert 'pip install "paracosm[tensorboard]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Recorder:
    """What is asked of an MLflow server, in place of its client."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[object, ...]]] = []

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return f"of {name}"

    def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
        self.asked.append(("run", (experiment, run_name)))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def log_param(self, run: str, key: str, value: object) -> None:
        self.asked.append(("parameter", (run, key, value)))

    def log_batch(self, run: str, metrics: list[tuple[str, float, int, int]]) -> None:
        assert len(metrics) <= 1000  # MLflow's limit of a request
        self.asked += [("metric", (run, *metric)) for metric in metrics]

    def set_terminated(self, run: str) -> None:
        self.asked.append(("end", (run,)))


def test_mlflow_gets_arguments_and_every_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client, places = Recorder(), []

    def connect(tracking_uri: str) -> Recorder:
        places.append(tracking_uri)
        return client

    monkeypatch.setitem(sys.modules, "mlflow.tracking", SimpleNamespace(MlflowClient=connect))
    entities = SimpleNamespace(Metric=lambda *fields: fields)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(entities=entities))
    monkeypatch.chdir(tmp_path)
    flags = [*RELAX, "--processors", "1,2", "--out", "out", "--mlflow"]
    assert main([*flags, "logged"]) == 0
    assert places == [f"sqlite:///{tmp_path}/logged/mlflow.db"]
    asked = client.asked
    runs = ["processors=1", "processors=2"]
    assert [given for what, given in asked if what == "run"] == [("of paracosm", r) for r in runs]
    assert ("parameter", ("processors=2", "processors", 2)) in asked
    assert [given for what, given in asked if what == "end"] == [(r,) for r in runs]
    rows = RunFolder.open(tmp_path / "out" / runs[0]).metrics().to_pylist()
    assert [given for what, given in asked if what == "metric" and given[0] == runs[0]] == [
        (
            *(runs[0], f"{row['name']}/{row['node']}".rstrip("/"), row["value"]),
            *(round(1000 * row["virtual_time"]), row["step"]),
        )
        for row in rows
    ]
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert main([*flags, "logged", "--force"]) == 2
    assert 'pip install "paracosm[mlflow]"' in capsys.readouterr().err
    assert main([*RELAX, "--mlflow", "logged"]) == 2
