"""`paracosm relax tune` as its users call it: what it prints, writes and returns."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.studies import RunFolder

Capture = pytest.CaptureFixture[str]
FLAGS = [
    "relax", "tune", "--problem", "laplace2d:5", "--processors", "3",
    "--fault", "uniform(-100, 100) every 200s",
]  # fmt: skip
SPACE = ["--tune", "alpha=1.05..20, omega=1..500s"]
SEARCH = [*SPACE, "--seeds", "3", "--trials", "5"]
COST = ["--checkpoint", "cost=1s"]
PROGRAM = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_search_prints_the_best_with_its_spread_and_leaves_its_files(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "tune"
    assert main([*FLAGS, *SEARCH, *COST, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    record = json.loads((out / "summary.json").read_text())
    best = record["best"]
    assert re.search(rf'policy +"{re.escape(best["checkpoint"])}"', printed)
    median = best["in_search"]["time_over_fault_free"]["median"]
    for words in ("quartiles", "without checkpoints", "Young's interval", "Daly's interval"):
        assert words in printed
    assert re.search(r"fresh seeds +3 to 5", printed)
    assert f"report: {out / 'report.html'}\n" in printed
    run = RunFolder.open(out)
    assert run.study["tune"]["study"]["relax"]["problem"] == "laplace2d:5"
    assert run.study["tune"]["tune"] == "alpha=1.05..20, omega=1..500s"
    page = (out / "report.html").read_text()
    said = printed.splitlines()[0]
    assert said == (
        f"Best of 5 trials: alpha={best['alpha']:g}, omega={best['omega']:g} s, {median:.3g} "
        "times the time without faults."
    )
    assert said in page
    figures = json.loads(re.search(r'id="figures-data">(.*?)</script>', page)[1])
    assert list(figures) == ["landscape", "alpha", "omega"]
    shown = [trace for trace in figures["landscape"]["data"] if trace["meta"]["series"] != "best"]
    assert sum(len(trace["x"]) for trace in shown) == 5  # every trial once
    (star,) = [t for t in figures["alpha"]["data"] if t["meta"]["series"] == "best"]
    assert (star["x"], star["y"]) == (
        pytest.approx([best["alpha"]]),
        pytest.approx([median], rel=1e-5),
    )
    assert main(["report", str(out), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == page


def test_the_policy_that_is_printed_runs_as_it_did_in_the_search(capsys: Capture) -> None:
    assert main([*FLAGS, *SEARCH[:2], "--seeds", "1", "--trials", "2", *COST, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    best = json.loads(captured.out)["best"]
    again = ["relax", *FLAGS[2:], "--checkpoint", best["checkpoint"], "--json"]
    assert main(again) == 0
    time_again = json.loads(capsys.readouterr().out)["virtual_time"]
    assert time_again == best["in_search"]["time"]["median"]


def test_a_study_file_says_what_flags_say(tmp_path: Path, capsys: Capture) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "relax: {problem: 'laplace2d:5', processors: 3, fault: 'uniform(-100, 100) every 200s',"
        " checkpoint: {cost: 1s}}"
    )
    assert main(["relax", "tune", str(study), *SEARCH, "--json"]) == 0
    by_file = json.loads(capsys.readouterr().out)
    assert main([*FLAGS, *SEARCH, *COST, "--json"]) == 0
    assert by_file == json.loads(capsys.readouterr().out)
    named = ["--minimize", "time_over_fault_free", "--json", "--out", str(tmp_path / "out")]
    assert main(["tune", str(study), *SEARCH, *named]) == 0
    assert by_file == json.loads(capsys.readouterr().out)
    assert main(["tune", str(tmp_path / "out" / "study.yaml"), "--json"]) == 0
    assert by_file == json.loads(capsys.readouterr().out)


def test_a_search_without_success_is_exit_code_one(capsys: Capture) -> None:
    hopeless = ["--tune", "alpha=0.9..1, omega=1..5s", "--seeds", "2", "--trials", "2"]
    assert main([*FLAGS, *hopeless]) == 1
    assert "No trial's median run converged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (FLAGS, "tune: must be given: what to vary"),
        ([*FLAGS, "--tune", "alfa=1..2"], 'did you mean "alpha"?'),
        ([*FLAGS, "--tune", "alpha=1.05..2"], "omega"),
        ([*FLAGS, *SEARCH, "--checkpoint", "alpha=2"], "alpha is to be tuned: leave it out"),
        ([*FLAGS[:4], *SEARCH], "give a fault"),
        ([*FLAGS, *SEARCH, "--method", "jacoby"], 'did you mean "jacobi"?'),
        ([*FLAGS, *SEARCH, "--limit", "1"], "limit"),
        ([*FLAGS, *SEARCH, "--json", "--quiet"], "--json and --quiet exclude each other"),
        ([*FLAGS, *SEARCH, "--force"], "give --out as well"),
        ([*FLAGS, *SEARCH, "--timeline", "5"], "timeline"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_exit_code_two(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_folder_is_gone_where_nothing_came_of_it(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "tune"
    assert main([*FLAGS, *SEARCH, "--max-sweeps", "1", "--out", str(out)]) == 2
    assert "does not converge" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_an_interrupted_search_keeps_the_best_so_far(tmp_path: Path) -> None:
    out = tmp_path / "tune"
    assert main([*FLAGS, *SPACE, "--trials", "1", "--quiet"]) == 0  # the child compiles nothing
    command = [*FLAGS, *SPACE, "--trials", "10000", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *command], stdout=subprocess.PIPE, text=True
    ) as process:
        time.sleep(15)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert printed.startswith("Interrupted, not validated: best of ")
    assert json.loads((out / "summary.json").read_text())["status"] == "interrupted"
    assert (out / "report.html").exists()
