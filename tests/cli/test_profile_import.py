"""`paracosm profile import`, and what `profile job` refuses: what is written, printed and said."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.profiling.jobs import load_job_profile

DATA = Path(__file__).parents[1] / "data"
STEP = DATA / "tensorflow_job" / "mlp.pb.gz"
TRACE = DATA / "kineto" / "resnet.json.gz"

Capture = pytest.CaptureFixture[str]


def test_steps_of_tensorflow_become_a_profile_that_can_be_read(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "job.profile"
    flags = ["--batch", "256", "--bandwidth", "1Gbit/s", "--details", "--out", str(out)]
    assert main(["profile", "import", str(STEP), *flags]) == 0
    printed = capsys.readouterr().out
    assert "1 steps of 65 ops" not in printed
    assert "1 step of 65 ops, 1 worker, 1 server" in printed
    assert "link: 1 Gbit/s" in printed
    assert printed.endswith(f"{out}\n")
    profile = load_job_profile(out)
    assert (profile.steps, profile.ops, profile.batch, profile.bandwidth) == (1, 65, 256, 125e6)


def test_the_summary_says_what_is_in_it(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "job.profile"
    assert main(["profile", "import", str(STEP), "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    parameters = 4 * (785 * 512 + 513 * 256 + 257 * 10)
    assert summary["status"] == "done"
    assert (summary["bytes_down"], summary["bytes_up"]) == (parameters, parameters + 4)
    assert summary["ops_of"] == {"downlink": 6, "worker": 31, "uplink": 7, "server": 21}
    assert summary["dropped"] == {}
    assert all(0 < share < 1 for share in summary["utilisation"].values())
    profile = load_job_profile(out)
    assert summary["step_seconds"] == pytest.approx(float(profile.step_end[0]))


def test_nothing_is_replaced_or_printed_unasked(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "job.profile"
    out.write_text("mine")
    command = ["profile", "import", str(STEP), "--out", str(out)]
    assert main(command) == 2
    assert "job.profile exists: --force replaces it" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main([*command, "--force", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert load_job_profile(out).steps == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([STEP, "--servers", "2"], "--servers has no effect on traces of TensorFlow"),
        ([STEP, "--bandwidth", "fast"], "--bandwidth: "),
        ([STEP, "--bandwidth", "0"], "--bandwidth 0: must be above 0"),
        ([STEP, "--json", "--quiet"], "--json and --quiet exclude each other"),
        ([TRACE, STEP], "resnet.json.gz: a profiler trace holds all its steps"),
        ([TRACE, "--shape", "3x32x32"], "--shape describes the model"),
        (["gone.pb"], "gone.pb: no such file"),
        ([DATA / "tensorflow_job" / "README.md"], "README.md: unrecognised format"),
        (
            [DATA / "importers" / "convnet_step.pb"],
            "convnet_step.pb: all ops ran on /job:localhost",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: list[str | Path], why: str, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "job.profile"
    assert main(["profile", "import", *map(str, arguments), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_file_that_is_cut_off_is_named(tmp_path: Path, capsys: Capture) -> None:
    data = gzip.decompress(STEP.read_bytes())
    first, cut = tmp_path / "1.pb", tmp_path / "2.pb"
    shutil.copy(STEP, first)
    cut.write_bytes(data[: len(data) // 3])
    assert main(["profile", "import", str(first), str(cut), "--out", str(tmp_path / "o")]) == 2
    assert f"{cut}: cut off or damaged: its bytes are no RunMetadata" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--framework", "tensorfow"], 'unknown framework "tensorfow": did you mean "tensorflow"?'),
        (["--framework", "tensorflow", "--lr", "1"], "--lr has no effect with --framework ten"),
        (["--framework", "pytorch", "--warmup", "1"], "--warmup has no effect with --framework py"),
        (["--framework", "pytorch", "--", "-x"], "text after -- has no effect"),
        (["--framework", "tensorflow"], "train.py: no such file"),
        (["--framework", "tensorflow", "--timeout", "0s"], "timeout: 0, not above 0"),
        (["--framework", "tensorflow", "--timeout", "soon"], "--timeout: "),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_line(
    arguments: list[str], why: str, tmp_path: Path, capsys: Capture
) -> None:
    out = str(tmp_path / "job.profile")
    assert main(["profile", "job", "train.py", "--out", out, *arguments]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_a_folder_that_is_not_there_is_found_before_anything_is_profiled(
    tmp_path: Path, capsys: Capture
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it ran')")
    out = tmp_path / "no" / "job.profile"
    command = ["profile", "job", str(script), "--framework", "tensorflow", "--out", str(out)]
    assert main(command) == 2
    assert "the folder" in capsys.readouterr().err
