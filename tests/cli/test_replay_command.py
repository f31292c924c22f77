"""`paracosm replay` on real traces, and its guide: what it prints, writes and refuses."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from glob import glob
from pathlib import Path

import pytest
import yaml

from paracosm.cli import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "replay.md").read_text()
DATA = ROOT / "tests" / "data" / "kineto"
DLRM = [str(path) for path in sorted((DATA / "dlrm").glob("*.json.gz"))]
RESNET = str(DATA / "resnet.json.gz")

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("command", "printed"),
    re.findall(
        r"^    paracosm (replay tests[^\n]*)\n\n```\n(.*?)```", GUIDE, re.DOTALL | re.MULTILINE
    ),
)
def test_commands_of_the_guide_print_what_it_says(
    command: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "110")
    words = [file for word in shlex.split(command) for file in sorted(glob(word)) or [word]]
    assert main(words) == 0
    assert capsys.readouterr().out == printed


def test_the_program_of_the_guide_prints_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    ((program, printed),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", GUIDE, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(program, {})
    assert capsys.readouterr().out == printed


def test_json_has_everything_by_rank(capsys: Capture) -> None:
    what_ifs = ["--what-if", "links: bandwidth 2x", "--what-if", "worker 7: host 2x faster"]
    assert main(["replay", *DLRM, *what_ifs, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["iteration_time"] == pytest.approx(19.901e-3)
    assert abs(summary["replayed"]["error"]) < 2e-4
    assert summary["ranks"] == list(range(8))
    assert summary["steps"] == [10]
    assert [each["what_if"] for each in summary["what_ifs"]] == what_ifs[1::2]
    assert summary["together"]["what_if"] == "links: bandwidth 2x; worker 7: host 2x faster"
    assert 1 < summary["what_ifs"][1]["speedup"] < summary["together"]["speedup"] < 1.1
    parts = summary["replayed"]["breakdown"]["1"]
    whole = sum(parts[name] for name in ("compute", "exposed_communication", "waiting", "host"))
    assert whole == pytest.approx(summary["replayed"]["iteration_time"])
    assert summary["replayed"]["straggler"]["rank"] == 7
    assert summary["replayed"]["bottleneck"].startswith("The host: for 56% of the ranks' time")


def test_a_run_folder_has_summary_timeline_and_report(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "deep" / "run"
    command = ["replay", *DLRM, "--what-if", "links: bandwidth 2x", "--out", str(out), "--quiet"]
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "done"
    study = yaml.safe_load((out / "study.yaml").read_text())
    assert study["replay"]["what_if"] == ["links: bandwidth 2x"]
    page = (out / "report.html").read_text()
    assert "Rank 7 comes last to 5 of 8 collectives" in page
    assert "Ranks, links: bandwidth 2x" in page
    assert main(["trace", str(out), "--quiet"]) == 0
    events = json.loads(gzip.decompress((out / "trace.json.gz").read_bytes()))["traceEvents"]
    processes = {e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert processes >= {"rank 0", "rank 7", "rank 7, links: bandwidth 2x"}
    waits = [e for e in events if e["ph"] == "X" and e["name"] == "wait: all_to_all"]
    assert max(e["dur"] for e in waits) == pytest.approx(7624, abs=10)  # rank 1 for rank 7
    assert main(command) == 2
    assert f"{out}: the folder exists and is not empty: choose another" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert main(["report", str(out), "--quiet"]) == 0


def test_a_replay_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    assert main(["replay", DLRM[0], "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (DLRM[:1], "there is no trace of rank 1, 2, 3, 4, 5, 6, ...: give one of every rank"),
        ([*DLRM, "--alone"], "--alone needs the trace of a single rank"),
        ([RESNET, "--alone"], "--alone has no effect: the trace has no collectives"),
        ([RESNET, "--steps", "1..999999999999"], "has more than 100,000 steps"),
        ([RESNET, "--what-if", "kernel zzz: 2x faster"], "choose from at::native::"),
        ([RESNET, "--what-if", "links: bandwidth 2x"], "the traces have no communication"),
        (
            [RESNET, "--what-if", "worker 1: compute 2x faster"],
            "no worker 1: there are traces of ranks 0",
        ),
        ([RESNET, "--what-if", "worker 0: copmute 2x faster"], 'did you mean "compute"?'),
        ([RESNET, "--steps", "103"], "no step 103: it has 101 to 102"),
        ([RESNET, "--steps", "101..x"], 'steps: write 5 or 5..9, not "101..x"'),
        ([RESNET, "--steps", "5..4"], 'steps: write 5 or 5..9, not "5..4"'),
        ([RESNET, "--steps", "1,3"], "steps: write consecutive steps"),
        ([RESNET, "--json", "--quiet"], "--json and --quiet exclude each other"),
        ([RESNET, "--force"], "--force replaces the run in a folder: give --out as well"),
        ([RESNET, "--out", RESNET], "cannot write a run folder here"),
        (["nowhere.json"], "nowhere.json: no such file"),
        ([str(DATA / "README.md")], "byte 0: no JSON: it begins with"),
    ],
)
def test_bad_input_is_answered_in_a_line(
    arguments: list[str], reason: str, capsys: Capture
) -> None:
    assert main(["replay", *arguments]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_one_rank_alone(capsys: Capture) -> None:
    assert main(["replay", DLRM[3], "--alone", "--what-if", "collectives: none"]) == 0
    printed = capsys.readouterr().out
    assert re.search("one rank alone +its collectives are as long as they were", printed)
    assert re.search(r"collectives: none +\S+ ms +-\d", printed)
