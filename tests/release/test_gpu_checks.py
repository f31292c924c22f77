"""`make gpu` without a GPU: its checks on the CPU, its NCCL on a device that is faked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpu
import pytest
import torch

from paracosm.emulation.compiled_c import compiled
from paracosm.emulation.nccl import build

NCCL = Path(__file__).parents[1] / "emulation" / "nccl"


def test_without_a_gpu_it_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    assert gpu.main() == 3
    said = capsys.readouterr().out
    assert said.startswith("NO GPU HERE: SKIPPED: tests, ops, delays, nccl, train, script: ")


def test_every_row_says_whether_it_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(device: str, folder: Path) -> gpu.Finding:
        raise gpu.CheckError(f"no {device}\nhere")

    fine = {"fine": lambda device, folder: gpu.Finding(folder.is_dir(), device)}
    monkeypatch.setattr(gpu, "CHECKS", {**fine, "broken": broken})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    monkeypatch.setattr("sys.argv", ["gpu.py", "--only", "fine,broken"])
    assert gpu.main() == 1
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert rows == [
        "| fine | passed | cuda | 0 s |",
        "| broken | FAILED | CheckError: no cuda here | 0 s |",
    ]
    monkeypatch.setattr("sys.argv", ["gpu.py", "--only", "fine"])
    assert gpu.main() == 0


def test_a_device_is_found_by_what_its_driver_says() -> None:
    assert gpu.hardware_named("NVIDIA H100 80GB HBM3") == "h100-sxm"
    with pytest.raises(gpu.CheckError, match='"GeForce 256" is not in the catalogue'):
        gpu.hardware_named("GeForce 256")


def test_the_rate_of_a_real_run_is_that_of_its_later_lines(tmp_path: Path) -> None:
    lines = "import time\nfor i in range(99): time.sleep(0.2 if i < 4 else 0.02); print(i)"
    rate = gpu.real_rate(("-c", lines), tmp_path, lines=12)
    assert 1 / 0.06 < rate < 1 / 0.02  # beside others
    with pytest.raises(gpu.CheckError, match="ended after 1 lines"):
        gpu.real_rate(("-c", "print(1); raise SystemExit(2)"), tmp_path)


@pytest.mark.slow
def test_what_lasts_as_long_as_by_hand_passes(tmp_path: Path) -> None:
    finding = gpu.delays("cpu", tmp_path)
    assert finding.passed
    assert finding.figures.startswith("20 of 2.1 ms: off by 0.00%")


@pytest.mark.slow
def test_the_nccl_library_on_a_fake_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = compiled(Path(build.__file__).parent, ("multiply.c",), ("-fvisibility=default",))
    device = compiled(NCCL, ("fake_cuda.c",), ("-fvisibility=default", "-DREAL_TIME"))
    monkeypatch.setenv(build.KERNELS, str(multiply))
    monkeypatch.setenv(build.DRIVER, str(device))
    monkeypatch.setenv("PYTHONPATH", str(NCCL))
    script = (str(NCCL / "nccl_program.py"),)
    finding = gpu.collectives("cpu", tmp_path, ("--nccl",), script, limit=100.0)
    assert finding.passed
    assert finding.figures.startswith("5 of 2.1 ms: ")


@pytest.mark.slow
def test_ops_and_an_iteration(tmp_path: Path) -> None:
    model = ("--model", "mlp(hidden=1024)", "--batch", "256", "--shape", "512")
    finding = gpu.ops("cpu", tmp_path, model, budget="4s", limit=1.0)
    assert finding.passed
    assert "0 refused; an iteration takes" in finding.figures
    assert not gpu.ops("cpu", tmp_path, model, budget="2s", limit=0.0).passed


@pytest.mark.slow
def test_training_by_a_model_on_the_device(tmp_path: Path) -> None:
    finding = gpu.train("cpu", tmp_path, updates=20)
    assert finding.passed
    assert finding.figures.endswith("(+0.00%)")


SCRIPT = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(1000):
    loss = model(torch.randn(256, 1024)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), flush=True)
"""


@pytest.mark.slow
def test_a_script_beside_its_real_run(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    finding = gpu.script("cpu", tmp_path, (str(path),), "cpu-2-core", budget="4s", limit=5.0)
    assert finding.figures.startswith("cpu-2-core: an iteration takes ")
    assert "by its timed ops" in finding.figures


@pytest.mark.slow
def test_tests_that_are_skipped_are_no_pass(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is here: nothing is skipped")
    finding = gpu.device_tests("cuda", tmp_path)
    assert not finding.passed
    assert "skipped" in finding.figures


@pytest.mark.slow
def test_the_script_that_all_reduces_says_a_wrong_sum(tmp_path: Path) -> None:
    fake = tmp_path / "sitecustomize.py"
    fake.write_text("import torch.distributed as d\nd.all_reduce = lambda tensor: tensor.mul_(3)\n")
    script = Path(gpu.__file__).with_name("all_reduces.py")
    variables = {"RANK": "0", "WORLD_SIZE": "1"}
    run = subprocess.run(
        [sys.executable, str(script), "cpu"],
        env={
            **gpu._environment(**variables, MASTER_ADDR="localhost", MASTER_PORT="29519"),
            "PYTHONPATH": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("a sum over 1 ranks is 3.0")
