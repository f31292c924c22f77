"""`paracosm emulate` as its users call it: what it prints, writes and returns."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from paracosm.cli import main
from paracosm.cli.verbs import _command
from paracosm.emulation.check import check_emulation
from paracosm.emulation.config import EmulateConfig
from paracosm.profiling.links.pair import PairLink
from paracosm.results import to_builtin
from paracosm.studies import RunFolder, load_study

ROOT = Path(__file__).parents[2]
DDP = ROOT / "tests" / "emulation" / "scripts" / "ddp.py"
LINKS = ("--bandwidth", "1Gbit/s", "--latency", "20us")
Capture = pytest.CaptureFixture[str]


def call(*arguments: object) -> int:
    return main(["emulate", *map(str, arguments)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of eight steps as rank 3 of 64."""
    out = tmp_path_factory.mktemp("emulate") / "run"
    flags = ("--world-size", 64, "--rank", 3, *LINKS, "--output", "none", "--out", out)
    assert call(*flags, DDP, "--steps", 8, "--hidden", 128) == 0
    return out


def summary_of(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary


def test_arguments_of_a_script_that_is_not_run_again_are_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    assert call(tmp_path, "--", "--steps", 9) == 2
    assert capsys.readouterr().err == (
        f'paracosm: arguments "--steps 9" have no effect: the script of {tmp_path} is not run '
        "again: leave them out\n"
    )
    for reused in ((tmp_path,), ("--measured", tmp_path, DDP)):
        assert call("--output", "none", *reused) == 2
        assert capsys.readouterr().err == (
            "paracosm: --output has no effect: the script is not run again: leave it out\n"
        )


def test_a_link_is_calibrated_without_a_script(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = PairLink(2e-5, 1e-5, 1e8, 1e9, error=0.0, worst=0.0)
    monkeypatch.setattr("paracosm.cli.calibrate_link.calibrate_link", lambda *_: found)
    file = tmp_path / "link.yaml"
    assert call("--calibrate-link", file, "--quiet") == 0
    assert "bandwidth: 800 Mbit/s" in file.read_text()
    for flag in (("--bandwidth", "1Gbit/s"), ("--no-pipelined",), ("--jobs", 2)):
        assert call("--calibrate-link", file, "--force", *flag) == 2
        assert "--calibrate-link runs no script: give it alone" in capsys.readouterr().err


def test_a_run_leaves_a_complete_folder(run: Path) -> None:
    assert {path.name for path in run.iterdir()} == {
        *("study.yaml", "environment.json", "metrics.parquet", "timeline.parquet"),
        *("collectives.parquet", "summary.json", "report.html"),
        "measured.records",
    }
    folder = RunFolder.open(run)
    assert folder.kind == "emulate"
    assert folder.status == "done"
    times = folder.series("iteration_time")
    assert times.step.tolist() == list(range(1, 8))
    assert (times.value > 0).all()
    assert {*folder.metrics()["node"].to_pylist()} == {"rank3"}


def test_the_summary_has_the_names_of_the_design(run: Path) -> None:
    summary = summary_of(run)
    assert (summary["world_size"], summary["mode"], summary["rank"]) == (64, "backend", [3])
    assert summary["iterations"] == 8
    time = summary["iteration_time"]
    assert 0 < time["p10"] <= time["median"] <= time["p90"]
    reduced = summary["collectives"]["all_reduce"]
    # One bucket of (16 x 128 + 2 x 128 x 128 + 128 x 4 + 3 x 128 + 4) parameters in each step.
    assert reduced["bytes"] == 8 * 4 * (16 * 128 + 2 * 128 * 128 + 128 * 4 + 3 * 128 + 4)
    assert reduced["count"] == 8
    # The least of all algorithms has 2 log2 64 messages one after the other, each 20 us late.
    assert reduced["time"] >= 8 * 12 * 20e-6
    assert summary["exit_code"] == 0


def test_every_collective_is_in_the_table(run: Path) -> None:
    table = pyarrow.parquet.read_table(run / "collectives.parquet").to_pylist()
    assert [row["kind"] for row in table].count("all_reduce") == 8
    for row in table:
        assert 0 <= row["asked"] <= row["begun"] <= row["done"]
        assert row["exposed"] + row["hidden"] == pytest.approx(row["done"] - row["asked"])
    assert {row["rank"] for row in table} == {3}


def test_the_study_of_a_run_asks_for_the_same_run(run: Path) -> None:
    study = load_study(run / "study.yaml")
    (point,) = study.points("study.yaml")
    assert point.config.arguments == ("--steps", "8", "--hidden", "128")
    assert point.config.rank == (3,)
    assert to_builtin(point.as_study()) == RunFolder.open(run).study


@pytest.mark.slow
def test_what_stands_behind_the_script_is_the_scripts(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text("import sys\nprint(sys.argv[1:], __name__, __file__)\n")
    flags = ["emulate", "--world-size", "2", str(script), "--world-size", "9", "--json", "-x"]
    done = subprocess.run(
        [sys.executable, "-m", "paracosm.cli.app", *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert f"['--world-size', '9', '--json', '-x'] __main__ {script}" in done.stdout
    assert "never called torch.distributed.init_process_group" in done.stdout
    assert done.returncode == 1


def test_flags_may_stand_behind_a_study_file_as_ever(tmp_path: Path, capsys: Capture) -> None:
    study = tmp_path / "worlds.yaml"
    study.write_text(f"emulate: {{script: {DDP}}}\nover: {{world_size: [2, 4]}}\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "something").touch()
    assert call(study, "--out", tmp_path / "run", "--seed", "3") == 2
    assert "the folder exists and holds something other" in capsys.readouterr().err
    assert call(study, "--steps", "3") == 2  # the script's: behind --
    assert "emulate has no option --steps" in capsys.readouterr().err


@pytest.mark.slow
def test_a_module_in_the_current_folder_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise ImportError('not this one')\n")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "own.py").write_text("value = 5\n")
    script = tmp_path / "beside" / "train.py"
    script.write_text("import own, random\nprint('uniform', random.random() < 1, own.value)\n")
    program = "import sys; from paracosm.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "emulate", "--world-size", "2", str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert "uniform True 5" in done.stdout, done.stderr
    assert done.returncode == 1  # nothing was emulated


def test_json_prints_the_summary_and_nothing_else_on_standard_output(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import torch.distributed as dist, torch\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(4))\n"
        "print('said by the script')\n"
        "raise ValueError('as expected')\n"
    )
    flags = ["emulate", "--world-size", "4", "--json", "--out", str(tmp_path / "run"), str(script)]
    done = subprocess.run(
        [sys.executable, "-m", "paracosm.cli.app", *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert "said by the script" in done.stderr
    assert "ValueError: as expected" in done.stderr
    assert f'File "{script}", line 5' in done.stderr
    assert "paracosm/" not in done.stderr.replace(str(tmp_path), "")
    assert summary["status"] == "failed"
    assert summary["exit_code"] == 1
    assert summary["collectives"]["all_reduce"]["count"] == 1
    written = summary_of(tmp_path / "run")
    assert written.pop("digest")
    assert summary == written


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--world-size", "4", "nowhere.py"], "nowhere.py: no such script"),
        ([str(DDP)], "missing number of ranks: add --world-size 16"),
        (["--world-size", "4", "--rank", "4", str(DDP)], "a world of 4 has ranks 0 to 3, not 4"),
        (["--world-size", "4", "--what-if", "all_reduc: +2 ms", str(DDP)], "all_reduce"),
        (["--world-size", "4", "--delays", "all_reduce 8ms..0ms", str(DDP)], "8"),
        (["--world-size", "4", "--compute-jitter", "norml(1ms, 1ms)", str(DDP)], "normal"),
        (
            ["--world-size", "4", "--cluster", "none.yaml", str(DDP)],
            'no cluster file at "none.yaml',
        ),
        (["--world-size", "4", "--algorithm", "rings", *LINKS, str(DDP)], "ring"),
        (["--world-size", "4", "--communication", "nothing:here", str(DDP)], "nothing"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_no_folder(
    flags: list[str], message: str, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    assert call("--out", out, *flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("paracosm: ")
    assert error.count("\n") == 1
    assert message in error
    assert not out.exists()


def test_a_port_in_use_is_named(tmp_path: Path, capsys: Capture) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert call("--world-size", 2, "--mode", "wire", "--port", port, DDP) == 2
    assert f"port {port}: Address already in use" in capsys.readouterr().err


def test_without_pytorch_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert call("--world-size", 2, DDP) == 2
    assert "pip install" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_keeps_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ["--world-size", "4", "--output", "none", "--out", str(out)]
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", *flags]
    with subprocess.Popen(
        [*command, str(DDP), "--steps", "100000"], stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.2)
            stream = out / "metrics.arrows"
            if stream.exists() and RunFolder.open(out).metrics().num_rows:
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in said
    summary = summary_of(out)
    assert summary["status"] == "interrupted"
    assert summary["iterations"] > 1
    assert (out / "report.html").is_file()


def test_the_examples_ask_for_what_the_guide_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    guide = (ROOT / "docs" / "emulation.md").read_text()
    study = ROOT / "examples" / "emulation" / "worlds.yaml"
    assert study.read_text() in guide
    points = load_study(study).points("worlds.yaml")
    assert [point.config.world for point in points] == [2, 8, 64, 512]
    for point in points:
        check_emulation(point.config)
    cluster = ROOT / "examples" / "emulation" / "cluster.yaml"
    assert EmulateConfig(cluster=cluster).world == 64


@pytest.mark.slow
def test_another_rank_than_0_is_real(tmp_path: Path) -> None:
    flags = ("--world-size", 4, "--quiet", "--mode", "wire", "--rank", 3, "--out", tmp_path / "run")
    assert call(*flags, DDP, "--steps", 3) == 0
    assert summary_of(tmp_path / "run")["status"] == "done"


@pytest.mark.slow
def test_delays_find_what_hides(tmp_path: Path) -> None:
    out = tmp_path / "delays"
    delays = ("--delays", "all_reduce 0ms..40ms/5", "--output", "none")
    assert call("--world-size", 4, *delays, "--out", out, DDP, "--steps", 12) == 0
    summary = summary_of(out)
    assert [row["delay"] for row in summary["delays"]] == [0.0, 0.01, 0.02, 0.03, 0.04]
    # One bucket, which nothing hides: an iteration takes so much longer as its all-reduce.
    assert summary["knee"]["slope"] == pytest.approx(1, abs=0.3)


def test_every_flag_of_the_guide_is_one_of_the_program() -> None:
    guide = (ROOT / "docs" / "emulation.md").read_text()
    commands = re.findall(r"^(paracosm emulate .*)$", guide, re.M)
    assert len(commands) >= 8
    for command in commands:
        serve = command.startswith("paracosm emulate serve")
        own = re.split(r"\.py\b(?!:)", command)[0]
        verb = _command("emulate serve" if serve else "emulate")
        known = {flag for parameter in verb.params for flag in parameter.opts}
        assert {word for word in own.split() if word.startswith("--")} <= known, command


@pytest.mark.slow
def test_wire_mode_leaves_the_same_folder(tmp_path: Path) -> None:
    out = tmp_path / "wire"
    flags = ("--world-size", 4, "--mode", "wire", "--output", "none", "--out", out)
    assert call(*flags, DDP, "--steps", 6) == 0
    summary = summary_of(out)
    assert summary["status"] == "done"
    assert summary["mode"] == "wire"
    assert summary["iterations"] == 6
    assert summary["collectives"]["all_reduce"]["count"] >= 6
    assert summary["emulator"]["sent"] > 0
