"""`paracosm relax` as its users call it: what it prints, writes and returns."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.studies import RunFolder

Capture = pytest.CaptureFixture[str]
SMALL = ["relax", "--problem", "laplace2d:6", "--processors", "3"]
PROGRAM = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"


def call(*arguments: str) -> int:
    return main(list(arguments))


def file_of(folder: Path, text: str) -> str:
    path = folder / "study.yaml"
    path.write_text(text)
    return str(path)


def test_a_run_leaves_a_complete_folder_and_prints_its_key_figures(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, "--out", str(out)) == 0
    printed = capsys.readouterr().out
    for word in ("converged", "residual", "sweeps", "virtual time", "rho(|C|)"):
        assert word in printed
    assert f"\nreport: {out / 'report.html'}\nnext: paracosm trace {out} " in printed
    names = {path.name for path in out.iterdir()}
    assert names == {
        "study.yaml",
        "environment.json",
        "metrics.parquet",
        "timeline.parquet",
        "summary.json",
        "report.html",
    }
    run = RunFolder.open(out)
    assert (run.kind, run.status) == ("relax", "converged")
    residual = run.series("residual")
    assert residual.value[-1] <= 1e-6 < residual.value[0]
    assert set(residual.node) == {"observer"}
    updates = run.series("updates")
    assert set(updates.node) == {"processor0", "processor1", "processor2"}
    assert updates.value.sum() == (run.summary or {})["updates"]


def test_json_prints_the_summary_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, "--json", "--out", str(out)) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert captured.err == ""
    written = json.loads((out / "summary.json").read_text())
    assert written.pop("digest")
    assert summary == written
    assert {
        "method",
        "read",
        "processors",
        "status",
        "residual",
        "relaxations",
        "sweeps",
        "virtual_time",
        "wall_time",
        "spectral_radius",
    } <= summary.keys()


def test_a_study_file_says_what_flags_say_and_flags_take_its_place(
    tmp_path: Path, capsys: Capture
) -> None:
    study = file_of(tmp_path, "seed: 4\nrelax: {problem: 'laplace2d:6', processors: 3}")

    def relaxations(*arguments: str) -> int:
        assert call(*arguments, "--json") == 0
        return int(json.loads(capsys.readouterr().out)["relaxations"])

    by_file = relaxations("relax", study)
    assert by_file == relaxations(*SMALL, "--seed", "4")
    assert by_file != relaxations("relax", study, "--tolerance", "1e-2")


def test_the_resolved_study_can_be_run_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert call(*SMALL, "--seed", "2", "--out", str(first), "--quiet") == 0
    assert call("relax", str(first / "study.yaml"), "--out", str(second), "--quiet") == 0
    assert RunFolder.open(first).study == RunFolder.open(second).study
    series = [RunFolder.open(out).series("residual").value.tolist() for out in (first, second)]
    assert series[0] == series[1]


GRID = """
relax: {problem: "laplace2d:6"}
over: {processors: [2, 3], seed: [0, 1]}
"""


def test_a_grid_makes_a_folder_for_each_point_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: Capture
) -> None:
    study, out = file_of(tmp_path, GRID), tmp_path / "sweep"
    assert call("relax", study, "--out", str(out), "--jobs", "2") == 0
    printed = capsys.readouterr().out
    assert "processors" in printed
    assert "sweeps" in printed
    rows = json.loads((out / "sweep.json").read_text())
    assert [row["point"] for row in rows] == [
        f"processors={processors},seed={seed}" for processors in (2, 3) for seed in (0, 1)
    ]
    kept, gone = (out / rows[i]["point"] / "summary.json" for i in (0, 3))
    before = kept.stat().st_mtime_ns
    gone.unlink()
    assert call("relax", study, "--out", str(out), "--quiet") == 0
    assert gone.exists()
    assert kept.stat().st_mtime_ns == before


def test_a_study_of_another_kind_is_told_its_verb(tmp_path: Path, capsys: Capture) -> None:
    relax = file_of(tmp_path, GRID)
    assert call("train", relax) == 2
    assert capsys.readouterr().err == (
        f"paracosm: {relax}: this is a relax study, not a train study: run it with paracosm relax "
        f"{relax}\n"
    )
    train = file_of(tmp_path, "train: {timing_only: true}")
    assert call("relax", train) == 2
    assert f"run it with paracosm train {train}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["relax", "--tolerence", "3"], "--tolerence"),
        ([*SMALL[:3], "--processors", "0"], "processors: "),
        ([*SMALL[:3], "--processors", "50"], "50"),
        ([*SMALL, "--problem", "laplas2d:6"], "laplace2d"),
        ([*SMALL, "--method", "jacoby"], 'did you mean "jacobi"?'),
        ([*SMALL, "--time", "normall(10, 3)"], 'did you mean "normal"?'),
        (["relax", "--matrix", "missing.mtx"], "missing.mtx"),
        (["relax", "missing.yaml"], "missing.yaml"),
        ([*SMALL, "--json", "--quiet"], "--json and --quiet exclude each other"),
        ([*SMALL, "--jobs", "2"], "--jobs needs a study with a grid"),
        ([*SMALL, "--backend", "dask"], "--backend needs a study with a grid"),
        ([*SMALL, "--force"], "--force replaces the run in a folder: give --out"),
        ([*SMALL, "--log"], "--log"),
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


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--max-sweeps", "3"], "stopped", "the tolerance 1e-06."),
        (["--method", "richardson(0.5)"], "diverged", "The iteration diverged: the residual from"),
    ],
)
def test_an_end_short_of_convergence_is_exit_code_one_and_a_line(
    tmp_path: Path, capsys: Capture, arguments: list[str], status: str, said: str
) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, *arguments, "--out", str(out)) == 1
    assert said in capsys.readouterr().out
    run = RunFolder.open(out)
    assert run.status == status
    assert len(run.series("residual")) > 0
    assert (out / "report.html").exists()
    assert call(*SMALL, *arguments, "--quiet") == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert said in captured.err


def test_an_interrupted_run_keeps_what_it_has_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    endless = ["relax", "--problem", "laplace2d:100", "--tolerance", "1e-300", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *endless], stdout=subprocess.PIPE, text=True
    ) as process:
        stream = out / "metrics.arrows"
        while not (stream.exists() and stream.stat().st_size > 2_000):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted" in printed
    run = RunFolder.open(out)
    assert run.status == "interrupted"
    assert len(run.series("residual")) > 0
    assert (out / "report.html").exists()


def test_a_relaxation_loads_nothing_that_it_does_not_need() -> None:
    program = (
        "import sys; from paracosm.cli import main; code = main(sys.argv[1:]);"
        "print(*sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, *SMALL, "--quiet"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "paracosm.relaxation" in modules
    heavy = {"torch", "sklearn", "pyarrow", "plotly", "matplotlib", "joblib"}
    assert not modules & {"paracosm.training", "paracosm.engine", *heavy}


def test_what_theory_says_stands_before_the_run_and_only_there(capsys: Capture) -> None:
    assert call(*SMALL) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("rho(|C|) = 0.9010 < 1: every asynchronous schedule converges")
    assert printed.count("rho(|C|)") == 1
    assert call(*SMALL, "--json") == 0
    assert capsys.readouterr().out.startswith("{")


def test_a_measurement_begins_with_the_fastest_case(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--threads", "1", "--variant", "race", "--repeats", "1", "--tolerance", "1e-2"]
    assert main(["relax", "measure", "--problem", "laplace2d:4", *flags]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Fastest: race on 1 thread, ")
    assert "mean of" not in said
    assert "more: --details" in said
