"""The program as its users call it: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from paracosm.cli import main
from paracosm.cli.options import with_fields_of
from paracosm.engine import Simulator
from paracosm.errors import InputError
from paracosm.studies import RunFolder
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
    written = json.loads((out / "summary.json").read_text())
    assert written.pop("digest")
    assert summary == written
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


def test_a_list_of_workers_makes_a_folder_for_each(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "sweep"
    flags = ("--workers", "1,2,4..16", "--updates", "3", "--timing-only", "--json")
    assert call("train", *flags, "--out", str(out)) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["workers"] for row in rows] == [1, 2, 4, 8, 16]
    assert (out / "workers=16" / "summary.json").is_file()
    assert "workers: 1,2,4..16" in (out / "study.yaml").read_text()


def test_a_change_is_shown_beside_the_unchanged_run(tmp_path: Path, capsys: Capture) -> None:
    flags = ("--timing-only", "--compute", "1s", "--workers", "1", "--updates", "2")
    out = tmp_path / "run"
    assert call("train", *flags, "--what-if", "compute: 2x slower", "--out", str(out)) == 0
    shown = capsys.readouterr().out
    assert "compute: 2x slower" in shown
    assert "virtual time 2 s" in shown
    assert RunFolder.open(out).summary["unchanged"]["virtual_time"] == 2
    assert "virtual time 2 s" in (out / "report.html").read_text()


def test_values_are_shown_with_their_units(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    links = ("--latency", "1ms", "--bandwidth", "10Gbit/s", "--overhead", "20us")
    flags = (*links, "--timing-only", "--details")
    assert call(*SMALL, *flags, "--out", str(out)) == 0
    link = "10 Gbit/s, latency 1 ms, overhead 20 us a message, full duplex, pipelined, fair sharing"
    assert link in " ".join(capsys.readouterr().out.split())
    assert link in (out / "report.html").read_text()
    study = (out / "study.yaml").read_text()
    assert "bandwidth: 10Gbit/s" in study
    assert "latency: 1ms" in study


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
        (["train", "--bandwidth", "25"], '"25" has no unit'),
        (["train", "--latency", "5"], '"5" has no unit'),
        (["train", "--compute", "20"], '"20" has no unit'),
        (["relax", "--problem", "laplace2d:4", "--time", "10"], '"10" has no unit'),
        (["train", "--data", "mine.csv"], "come from a function, as in --data mydata.py:load"),
        (
            ["emulate", "train.py", "--world-size", "4", "--seed", "1"],
            "--world-size stands behind the script: it goes to the script",
        ),
        (["train", "--sharing", "both"], "fair, serial or packets(16KiB)"),
        (["train", "--workers", "1000000000"], "at most 1,000,000 workers"),
        (["train", "--servers", "1000000000"], "less than or equal to 10000,"),
        (["train", "--updates", "1000000000"], "less than or equal to 100000000"),
        (["train", "--workers", "1,2"], "a list of workers is a sweep, which needs a folder"),
        (["train", "--algorithm", "asgd, ssgd"], "a list of algorithms is a sweep, which needs"),
        (["train", "--lr", "0.1,"], "a list of learning rates is a sweep, which needs a folder"),
        (["train", "--workers", "2..1"], "is not a range"),
        (["train", "--what-if", "worker 9: compute 2x slower"], "there are workers 0 to 3, not 9"),
        (["train", "--what-if", "link 0-9: latency 1 ms"], '"worker9"'),
        (["train", "--what-if", "all_reduce: 2x slower"], "train cannot change that"),
        (["train", "--what-if", "faster"], 'what_if "faster": write SUBJECT: CHANGE'),
        (["train", "--model", "mpl"], 'did you mean "mlp"?'),
        (["train", "--model", "gpt-small"], "model gpt-small takes sequences of tokens"),
        (["train", "--model", "vgg11"], "choose other data (cifar10 or your own)"),
        (["train", "--model", "mlp(hidden=0)"], "hidden is a whole number from 1 to 65,536, not 0"),
        (["train", "--optimizer", "none"], "training changes parameters"),
        (["predict", "--model", "mlp(hiden=3)"], 'did you mean "hidden"?'),
        (["predict", "--model", "resnet20", "--optimizer", "adan"], 'did you mean "adam"?'),
        (["graph", "capture", "vgg11", "--shape", "1x8x8"], "vgg11 takes images of 32 pixels"),
        (["train", "--data", "digit"], 'did you mean "digits"?'),
        (["train", "--algorithm", "asgdd"], 'did you mean "asgd"?'),
        (["train", "--data", "cifar10"], "--data-dir"),
        (["train", "--bandwith", "1GB/s"], "no option --bandwith: did you mean --bandwidth?"),
        (["train", "--epochs", "3"], "did you mean --updates?"),
        (["train", "--updates", "1e3"], "updates: a whole number, not '1e3': write 1000"),
        (["train", "--seed", "1e3"], "--seed: a whole number, not 1e3: write 1000"),
        (["train", "--updates"], "--updates needs a value: updates before the run ends"),
        (["train", "--latency", "1", "ms"], '"ms" stands alone'),
        (["train", "--algorithm", "adacomm(interval=10)"], '"10" has no unit'),
        (["relax", "A.mtx"], "A.mtx is a matrix, and no study file: paracosm relax --matrix A.mtx"),
        (["relax", "tune", "A.mtx"], "paracosm relax tune --matrix A.mtx --fault"),
        (["train", "--latency", "10m"], '"10m" is minutes or milliseconds: write 10min or 10ms'),
        (["train", "--lr", "fast"], "lr: a number, not 'fast'"),
        (["graph", "capture", "--model", "vgg11"], "model stands without a flag: paracosm graph"),
        (["hardware", "list", "h100"], '"h100" is too much: see paracosm hardware list --help'),
        (["profile", "ops", "hf.py:llama"], '"hf.py:llama" is too much: write --model hf.py:llama'),
        (["profile", "ops", "train.py"], '"train.py" is too much: see paracosm profile ops --help'),
        (["train", "--data", "none.py:load"], "no such file: none.py"),
        (["train", "--until", "loss"], 'write 20s or "loss <= 0.1"'),
        (["emulate", "--world-size", "8", "A.mtx"], "A.mtx is a matrix, and no script: paracosm"),
        (["predict", "no.profile"], "no such file: paracosm profile job writes job profiles"),
        (["predict", "--model", "llama-3.1-8b"], 'did you mean "llama-8b"?'),
        (["predict", "llama-8b"], "paracosm predict --model llama-8b"),
        (["predict"], "for example paracosm predict --model"),
        (["emulate"], "missing script: paracosm emulate --world-size 16"),
        (["profile", "job", "mlp", "--out", "a.profile"], "add --framework pytorch"),
        (["graph", "show"], "for example paracosm graph show"),
        (["plan", "--script", "train.py"], "hardware: must be given"),
        (["plan", "--script", "train.py"], "so must workers"),
        (["train", "--model", "nowhere:model"], "nowhere"),
        (["train", "missing.yaml"], "missing.yaml"),
        (["train", "--cluster", "missing.yaml"], "missing.yaml"),
        (["train", "--algorithm", "sequential", "--workers", "2"], "sequential runs on 1 worker"),
        ([*SMALL, "--log", "--json"], "--log and --json"),
        ([*SMALL, "--json", "--quiet"], "--json and --quiet exclude each other"),
        ([*SMALL, "--jobs", "2"], "--jobs needs a study with a grid"),
        ([*SMALL, "--force"], "--force replaces the run in a folder: give --out"),
        (["report", "nowhere"], "nowhere"),
        (["db", "check", "x" * 300], "no file can have the name 'xxx"),
        (["db", "merge", "a.db", "x" * 300, "--out", "b.db"], "no file can have the name 'xxx"),
        (["calibrate", "--out", "/".join(["x" * 200] * 30)], "xxx ...\n"),
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


GRID = "train: {updates: 5, timing_only: true}\nover: {workers: [1, 2]}"


def grid(folder: Path, text: str = GRID) -> str:
    file = folder / "grid.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--log"], "--log works on a single run"),
        (["--workers", "8"], "workers is varied by the study (over.workers): leave out --workers"),
    ],
)
def test_flags_that_a_grid_would_not_heed_are_refused(
    tmp_path: Path, capsys: Capture, flags: list[str], message: str
) -> None:
    assert call("train", grid(tmp_path), "--out", str(tmp_path / "out"), *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_sweep_says_in_one_line_why_it_cannot_write(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "study.yaml").write_text("a: [")
    for out in (tmp_path / "file", tmp_path / "file" / "below", broken):
        assert call("train", grid(tmp_path), "--out", str(out)) == 2
        printed = capsys.readouterr().err
        assert printed.startswith(f"paracosm: {out}: ")
        assert printed.count("\n") == 1


def test_a_run_and_a_sweep_take_each_other_s_place_and_nothing_else_s(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    sweep = ["train", grid(tmp_path), "--out", str(out), "--force", "--quiet"]
    run = ["train", "--timing-only", "--updates", "5", "--out", str(out), "--force", "--quiet"]
    assert call(*run) == 0
    (out / "notes.txt").write_text("mine")
    assert call(*sweep) == 0
    assert {path.name for path in out.iterdir()} == {
        "notes.txt",
        "study.yaml",
        "sweep.json",
        "report.html",
        "workers=1",
        "workers=2",
    }
    assert call(*run) == 0
    assert not (out / "sweep.json").exists()
    assert RunFolder.open(out).status == "done"
    assert (out / "notes.txt").read_text() == "mine"
    assert call("report", str(out)) == 0


def test_a_point_of_another_study_does_not_count_as_finished(tmp_path: Path) -> None:
    out, study = tmp_path / "out", grid(tmp_path)
    assert call("train", study, "--out", str(out), "--quiet") == 0
    (out / "study.yaml").unlink()
    (out / "sweep.json").unlink()
    (out / "report.html").unlink()
    changed = grid(tmp_path, GRID.replace("updates: 5", "updates: 6"))
    assert call("train", changed, "--out", str(out), "--quiet") == 2
    assert call("train", changed, "--out", str(out), "--quiet", "--force") == 0
    for point in ("workers=1", "workers=2"):
        assert (RunFolder.open(out / point).summary or {})["updates"] == 6


def test_a_point_whose_folder_holds_another_run_is_run_again(tmp_path: Path) -> None:
    """It came to an end, but of another study than the point's."""
    out, study = tmp_path / "out", grid(tmp_path)
    assert call("train", study, "--out", str(out), "--quiet") == 0
    shutil.rmtree(out / "workers=2")
    other = tmp_path / "other.yaml"
    other.write_text("train: {workers: 2, updates: 7, lookahead: off}")
    assert call("train", str(other), "--out", str(out / "workers=2"), "--quiet") == 0
    assert (RunFolder.open(out / "workers=2").summary or {})["updates"] == 7
    assert call("train", study, "--out", str(out), "--quiet") == 0
    assert (RunFolder.open(out / "workers=2").summary or {})["updates"] == 5


def test_a_sweep_over_clusters_names_them_in_its_table(tmp_path: Path, capsys: Capture) -> None:
    clusters = (
        "[{topology: star, workers: 2, servers: 1}, {topology: star, workers: 3, servers: 1}]"
    )
    study = grid(
        tmp_path, f"train: {{updates: 5, timing_only: true}}\nover: {{cluster: {clusters}}}"
    )
    assert call("train", study, "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert "cluster=1" in printed
    assert "cluster=2" in printed
    assert "{" not in printed


def test_brackets_and_colons_of_a_path_are_printed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["train", "--timing-only", "--updates", "5"]
    assert call(*small, "--out", "[a] :smile:") == 0
    assert f"report: {Path('[a] :smile:') / 'report.html'}" in capsys.readouterr().out
    assert call("train", grid(tmp_path), "--out", "[b]") == 0
    assert f"report: {Path('[b]') / 'report.html'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("1 TiB"), 1, "out of memory: 1 TiB"),
        (OSError(28, "No space left on device", "a/b"), 1, "a/b: No space left on device"),
    ],
)
def test_what_stops_the_program_anywhere_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr("paracosm.cli.run_verb.run_point", Mock(side_effect=error))
    assert call(*SMALL) == code
    assert capsys.readouterr().err == f"paracosm: {message}\n"


def test_a_defect_is_one_line_that_says_how_to_see_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("paracosm.cli.run_verb.run_point", len)  # which takes one argument
    monkeypatch.delenv("PARACOSM_DEBUG", raising=False)
    assert call(*SMALL) == 1
    message = capsys.readouterr().err
    assert message.startswith("paracosm: a bug in Paracosm (run_verb.py:")
    assert message.count("\n") == 1
    monkeypatch.setenv("PARACOSM_DEBUG", "1")
    with pytest.raises(TypeError):
        call(*SMALL)


def test_a_mistake_in_a_file_of_the_users_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(*_: object) -> None:
        Path("a\nb").read_text(encoding=5)  # type: ignore[arg-type]

    monkeypatch.setattr("paracosm.cli.run_verb.run_point", fail)
    monkeypatch.delenv("PARACOSM_DEBUG", raising=False)
    assert call(*SMALL) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"paracosm: {__file__}:")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("open('nowhere')", 1, "rule.py:6: FileNotFoundError: [Errno 2]"),
        ("raise MemoryError", 1, "rule.py:6: MemoryError "),
        ("raise StopIteration(3)", 2, "rule.py:6: RuntimeError: coroutine raised StopIteration"),
        ("raise Silent", 2, "rule.py:6: Silent "),
        ("raise SystemExit(3)", 2, "rule.py:6: SystemExit: 3 "),
    ],
)
def test_an_error_of_the_users_code_has_its_line_whatever_it_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    line: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARACOSM_DEBUG", raising=False)
    Path("rule.py").write_text(
        "from paracosm.training.algorithms.asynchronous import ASGD\n"
        "class Silent(Exception):\n    __str__ = None\n"
        "class Own(ASGD):\n"
        f"    async def work(self, me):\n        {line}\n"
    )
    assert call(*SMALL, "--algorithm", "rule.py:Own") == code
    printed = capsys.readouterr().err
    assert printed.startswith("paracosm: ")
    assert message in printed
    assert printed.count("\n") == 1


def test_a_pipe_that_its_reader_has_closed_ends_a_verb_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "paracosm", "hardware", "list"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("line", ["sys.stdout.close()", "sys.stdout = None"])
def test_output_that_the_users_code_has_closed_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rule.py").write_text(
        "import sys\nfrom paracosm.training.algorithms.asynchronous import ASGD\n"
        "class Own(ASGD):\n"
        "    async def work(self, me):\n"
        f"        {line}\n"
        "        await super().work(me)\n"
    )
    with Path("out").open("w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert call(*SMALL, "--algorithm", "rule.py:Own") == 1
    assert capsys.readouterr().err == ""


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


def test_the_first_line_is_the_answer(tmp_path: Path, capsys: Capture) -> None:
    assert call(*SMALL, "--lr", "1e-9") == 0
    answer, _, status, *_ = capsys.readouterr().out.splitlines()
    assert answer.startswith("Does not learn: ")
    assert status.split(maxsplit=1) == ["status", "at chance"]
    flags = ("--workers", "1,2", "--timing-only", "--updates", "5", "--out", str(tmp_path / "out"))
    assert call("train", *flags) == 0
    assert capsys.readouterr().out.startswith("Highest throughput with 2 workers: ")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_an_interrupted_run_keeps_what_it_has_and_says_so(
    tmp_path: Path, number: signal.Signals
) -> None:
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
        process.send_signal(number)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "interrupted" in printed
    run = RunFolder.open(out)
    assert run.summary is not None
    assert run.status == "interrupted"
    assert len(run.series("minibatch_loss")) == run.summary["updates"] > 0
    assert (out / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "whole_group"), [("1", False), ("2", False), ("2", True)])
def test_an_interrupted_sweep_stops_at_once_and_the_same_command_goes_on(
    tmp_path: Path, capsys: Capture, jobs: str, whole_group: bool
) -> None:
    """A terminal's Ctrl-C reaches the whole process group; `kill -INT` the main process alone."""
    out, study = tmp_path / "out", tmp_path / "study.yaml"
    study.write_text(
        "train: {workers: 2, lookahead: off}\nover: {updates: [5, 20000000, 10000000]}"
    )
    program = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["train", str(study), "--out", str(out), "--jobs", jobs]
    with subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        stream, sweep = out / "updates=20000000" / "metrics.arrows", out / "sweep.json"
        while not (
            stream.exists() and stream.stat().st_size > 10_000 and "updates=5" in sweep.read_text()
        ):
            assert process.poll() is None
            time.sleep(0.05)
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        _, printed = process.communicate(timeout=300)
    assert process.returncode == 130
    # The pool of processes may have last words of its own.
    assert "\nparacosm: interrupted: the same command" in f"\n{printed}"
    assert "Traceback" not in printed.partition("paracosm: interrupted")[0]
    assert jobs == "2" or not (out / "updates=10000000").exists()
    assert [row["point"] for row in json.loads(sweep.read_text())] == ["updates=5"]
    assert call("report", str(out), "--quiet") == 0


def test_an_interrupted_point_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    out, study = tmp_path / "out", grid(tmp_path)
    run = Simulator.run

    def interrupted(sim: Simulator, until: float | None = None) -> None:
        if "worker1" in sim.workers:
            signal.raise_signal(signal.SIGINT)
        run(sim, until)

    with monkeypatch.context() as patched:
        patched.setattr(Simulator, "run", interrupted)
        assert call("train", study, "--out", str(out)) == 130
    assert "the same command resumes where it stopped" in capsys.readouterr().err
    assert RunFolder.open(out / "workers=2").status == "interrupted"
    before = (out / "workers=1" / "summary.json").stat().st_mtime_ns
    assert call("train", study, "--out", str(out), "--json") == 0
    assert [row["status"] for row in json.loads(capsys.readouterr().out)] == ["done", "done"]
    assert (out / "workers=1" / "summary.json").stat().st_mtime_ns == before


def test_an_error_in_a_point_of_a_sweep_names_the_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("no such thing")

    monkeypatch.setattr("paracosm.studies.run.run_point", fail)
    assert call("train", grid(tmp_path), "--out", str(tmp_path / "out")) == 2
    assert (
        capsys.readouterr().err == "paracosm: workers=1: no such thing (none of 2 points can run)\n"
    )
    assert not (tmp_path / "out").exists()


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


def test_a_plan_has_no_timeline_to_trace(tmp_path: Path, capsys: Capture) -> None:
    with RunFolder.create(tmp_path / "plan", {"seed": 0, "plan": {}}) as run:
        run.finish({"kind": "plan"})
    assert call("trace", str(tmp_path / "plan")) == 2
    assert capsys.readouterr().err == f"paracosm: {tmp_path / 'plan'}: a plan has no timeline\n"


def test_a_report_and_a_trace_replace_only_what_is_one(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    assert call(*SMALL, "--out", str(out), "--quiet") == 0
    rows = (out / "metrics.parquet").read_bytes()
    for verb in ("report", "trace"):
        page = str(tmp_path / verb)
        assert [call(verb, str(out), "--out", page, "--quiet") for _ in range(2)] == [0, 0]
        assert call(verb, str(out), "--out", str(out / "metrics.parquet")) == 2
        assert f"exists and is not a {verb}: give another --out" in capsys.readouterr().err
    assert (out / "metrics.parquet").read_bytes() == rows


def test_a_removed_working_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert call("doctor") == 2
    assert "the working directory no longer exists" in capsys.readouterr().err


def test_kernels_that_numba_may_not_compile_are_refused() -> None:
    command = [sys.executable, "-m", "paracosm", "relax", "--problem", "laplace2d:4"]
    ended = subprocess.run(
        command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "paracosm: NUMBA_DISABLE_JIT is set, and simulated time needs Numba: unset it\n"
    )


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # which is how Python marks it as not there
    assert call(*SMALL) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert 'pip install "paracosm[torch]"' in captured.err
    assert call(*SMALL, "--timing-only", "--quiet") == 0
