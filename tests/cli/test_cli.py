"""The program as its users call it: what it prints, writes and returns."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.cli.options import with_fields_of
from paracosm.study import RunFolder
from paracosm.training import TrainConfig

Capture = pytest.CaptureFixture[str]
SMALL = ["train", "--updates", "20", "--workers", "2"]


def call(*arguments: str) -> int:
    return main(list(arguments))


def test_a_run_leaves_a_complete_folder_and_prints_where_the_report_is(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, "--latency", "1ms", "--bandwidth", "10Gbit/s", "--out", str(out)) == 0
    assert "report.html" in capsys.readouterr().out
    names = {path.name for path in out.iterdir()}
    assert names == {
        "study.yaml",
        "environment.json",
        "metrics.parquet",
        "timeline.parquet",
        "summary.json",
        "report.html",
    }
    assert RunFolder.open(out).status == "done"


def test_json_prints_the_summary_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, "--json", "--out", str(out)) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert captured.err == ""
    assert summary == json.loads((out / "summary.json").read_text())
    assert {
        "algorithm",
        "workers",
        "updates",
        "final_loss",
        "final_accuracy",
        "mean_staleness",
        "virtual_time",
        "wall_time",
        "examples_per_second",
        "status",
    } <= summary.keys()


def test_the_same_seed_gives_the_same_metrics_and_another_one_does_not(tmp_path: Path) -> None:
    losses = []
    for number, seed in enumerate(["1", "1", "2"]):
        out = tmp_path / str(number)
        assert call(*SMALL, "--lookahead", "off", "--seed", seed, "--out", str(out)) == 0
        losses.append(RunFolder.open(out).series("minibatch_loss").value.tolist())
    assert losses[0] == losses[1] != losses[2]


def test_a_study_file_says_what_flags_say_and_flags_take_its_place(
    tmp_path: Path, capsys: Capture
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("seed: 4\ntrain: {updates: 20, workers: 2, lookahead: off}")
    assert call("train", str(study), "--json") == 0
    by_file = json.loads(capsys.readouterr().out)
    assert call(*SMALL, "--lookahead", "off", "--seed", "4", "--json") == 0
    by_flags = json.loads(capsys.readouterr().out)
    assert by_file["final_loss"] == by_flags["final_loss"]
    assert call("train", str(study), "--updates", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["updates"] == 5


def test_every_argument_of_a_study_is_a_flag() -> None:
    @with_fields_of(TrainConfig)
    def command(**arguments: object) -> None: ...

    import inspect

    assert set(inspect.signature(command).parameters) == set(TrainConfig.model_fields)


def test_a_grid_makes_a_folder_for_each_point_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: Capture
) -> None:
    study, out = tmp_path / "study.yaml", tmp_path / "sweep"
    study.write_text("train: {updates: 10}\nover: {workers: [1, 2], algorithm: [asgd, ssgd]}")
    assert call("train", str(study), "--out", str(out), "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["varied"] for row in rows] == [
        {"workers": w, "algorithm": a} for w in (1, 2) for a in ("asgd", "ssgd")
    ]
    kept = out / "workers=1,algorithm=asgd" / "summary.json"
    gone = out / "workers=2,algorithm=ssgd" / "summary.json"
    before = kept.stat().st_mtime_ns
    gone.unlink()
    assert call("train", str(study), "--out", str(out), "--quiet") == 0
    assert gone.exists()
    assert kept.stat().st_mtime_ns == before
    study.write_text("train: {updates: 11}\nover: {workers: [1, 2]}")
    assert call("train", str(study), "--out", str(out)) == 2
    assert "--force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--wrokers", "3"], "--wrokers"),
        (["train", "--workers", "0"], "workers: "),
        (["train", "--bandwidth", "10 GBs"], "GBs"),
        (["train", "--bandwidth", "0"], "bandwidth"),
        (["train", "--latency=-1ms"], "latency"),
        (["train", "--model", "mpl"], 'did you mean "mlp"?'),
        (["train", "--data", "digit"], 'did you mean "digits"?'),
        (["train", "--algorithm", "asgdd"], 'did you mean "asgd"?'),
        (["train", "--data", "cifar10"], "--data-dir"),
        (["train", "--model", "nowhere:model"], "nowhere"),
        (["train", "missing.yaml"], "missing.yaml"),
        (["train", "--cluster", "missing.yaml"], "missing.yaml"),
        (["train", "--algorithm", "sequential", "--workers", "2"], "sequential runs on 1 worker"),
        (["report", "nowhere"], "nowhere"),
        (["trian"], "trian"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_exit_code_two(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    assert call(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_folder_that_holds_a_run_is_not_overwritten_unless_forced(
    tmp_path: Path, capsys: Capture
) -> None:
    out = str(tmp_path / "run")
    assert call(*SMALL, "--out", out, "--quiet") == 0
    assert call(*SMALL, "--out", out) == 2
    assert "--force" in capsys.readouterr().err
    assert call(*SMALL, "--out", out, "--force", "--quiet") == 0


def test_a_loss_that_explodes_ends_the_run_and_says_which_gradient_did_it(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    exploding = ["train", "--algorithm", "asgd", "--workers", "64", "--lr", "50", "--out", str(out)]
    assert call(*exploding) == 1
    printed = capsys.readouterr().out
    run = RunFolder.open(out)
    assert run.summary is not None
    divergence = run.summary["divergence"]
    assert f"update {divergence['update']}" in printed
    assert divergence["worker"] in printed
    assert run.status == "diverged"
    assert run.series("minibatch_loss").step[-1] == divergence["update"]


def test_an_interrupted_run_keeps_what_it_has_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    program = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["train", "--updates", "10000000", "--lookahead", "off", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        stream = out / "metrics.arrows"
        while not (stream.exists() and stream.stat().st_size > 10_000):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "interrupted" in printed
    run = RunFolder.open(out)
    assert run.summary is not None
    assert run.status == "interrupted"
    assert len(run.series("minibatch_loss")) == run.summary["updates"] > 0
    assert (out / "report.html").exists()


def test_a_run_s_timeline_becomes_a_trace_that_perfetto_opens(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, "--latency", "1ms", "--out", str(out), "--quiet") == 0
    assert call("trace", str(out), "--out", str(tmp_path / "trace.json")) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {"server0", "worker0", "worker1"}
    without = tmp_path / "without"
    assert call(*SMALL, "--no-timeline", "--out", str(without), "--quiet") == 0
    assert call("trace", str(without)) == 2
    assert "--timeline" in capsys.readouterr().err


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # which is how Python marks it as not there
    assert call(*SMALL) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert 'pip install "paracosm[torch]"' in captured.err
    assert call(*SMALL, "--timing-only", "--quiet") == 0
