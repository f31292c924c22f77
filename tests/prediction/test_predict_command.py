"""`paracosm predict`: flags, study files, run folders, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_database import GPU, KNOWN, make_database, make_graph

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.prediction.kind import KIND
from paracosm.studies import Hooks, RunFolder, Study, run_point

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """Return the flags of a prediction that needs neither PyTorch nor this machine."""
    database = make_database(tmp_path / "a.db", KNOWN)
    graph = make_graph(tmp_path / "a.graph")
    return ["predict", "--graph", str(graph), "--db", str(database), "--hardware", "Old Chip"]


def test_json_has_the_names_that_are_documented(asked: list[str], capsys: Capture) -> None:
    assert main([*asked, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["iteration_time"] == pytest.approx(500e-6)
    documented = ("examples_per_second", "throughput", "breakdown", "peak_memory", "bottleneck")
    for name in (*documented, "coverage", "baselines", "status", "interval", "durations"):
        assert name in summary, name


def test_a_run_folder_gives_a_report_and_a_trace(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    assert main([*asked, "--out", str(out)]) == 0
    assert (out / "report.html").stat().st_size > 10_000
    assert RunFolder.open(out).study["predict"]["graph"] == asked[2]
    assert main(["trace", str(out), "--out", str(tmp_path / "trace.json"), "--quiet"]) == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names == ["aten.convolution.default", "aten.relu.default", "aten.convolution.default"]
    assert [event["args"] for event in events if event["ph"] == "C"][-1] == {"value": 12000}
    capsys.readouterr()
    assert main([*asked, "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_study_file_says_the_same_as_flags(asked: list[str], tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        f"predict:\n  graph: {asked[2]}\n  db: {asked[4]}\n  hardware: old chip\n"
        "over:\n  cache: [cold, warm]\n  new_ops: [estimate, refuse]\n"
    )
    database = make_database(tmp_path / "a.db", [])
    assert database.is_file()
    assert main(["predict", str(study), "--out", str(tmp_path / "sweep"), "--quiet"]) == 1
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["status"] for row in rows if "cache=warm" in row["point"]] == ["failed"] * 2
    assert all(
        "status" in row and "error" not in row for row in rows if "cache=cold" in row["point"]
    )
    study.write_text(study.read_text().replace("[cold, warm]", "[cold]"))
    assert main(["predict", str(study), "--out", str(tmp_path / "sweep2"), "--quiet"]) == 0
    rows = json.loads((tmp_path / "sweep2" / "sweep.json").read_text())
    assert [row["iteration_time"] for row in rows] == [pytest.approx(500e-6)] * 2


def test_a_finished_run_can_be_run_again_from_its_own_study(
    asked: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert main([*asked, "--out", str(out), "--quiet"]) == 0
    again = tmp_path / "again"
    assert main(["predict", str(out / "study.yaml"), "--out", str(again), "--quiet"]) == 0
    assert RunFolder.open(again).summary == RunFolder.open(out).summary


def test_another_device_is_said_and_refused_unless_asked(
    tmp_path: Path, asked: list[str], capsys: Capture
) -> None:
    assert main(asked) == 0
    assert (
        "threads 1, malloc pinned, denormals flushed: not this machine." in capsys.readouterr().out
    )
    assert main(asked[:-2]) == 2
    said = capsys.readouterr().err
    assert "no timings of this machine, only of Old Chip 7" in said
    assert '--hardware "Old Chip 7"' in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "nothing to predict:"),
        (["--model", "resnet50", "--db", "nowhere.db"], "nowhere.db: no such database"),
        (["--model", "resnet51"], 'did you mean "resnet50"'),
        (["--model", "resnet50", "--batch", "0"], "batch: input should be greater"),
        (["--model", "resnet50", "--cache", "hot"], "cache: input should be 'cold' or 'warm'"),
    ],
)
def test_bad_input_is_answered_in_one_line(flags: list[str], message: str, capsys: Capture) -> None:
    assert main(["predict", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_what_is_no_database_is_said(asked: list[str], capsys: Capture) -> None:
    Path(asked[4]).write_text("no database at all, but long enough to be one")
    assert main(asked) == 2
    assert asked[4] in capsys.readouterr().err


def test_every_flag_comes_from_the_configuration(capsys: Capture) -> None:
    assert main(["predict", "--help"]) == 0
    printed = capsys.readouterr().out
    for name in KIND.fields:
        assert f"--{name.replace('_', '-')[:12]}" in printed, name


def test_a_prediction_has_no_log_of_events(asked: list[str]) -> None:
    config = {"graph": asked[2], "db": asked[4], "hardware": GPU.hardware}
    (point,) = Study(predict=config).points("test")
    with pytest.raises(InputError, match="has no event log"):
        run_point(point, hooks=Hooks(log=True))
