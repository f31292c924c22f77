"""Scripts on a device that is not there: what they ask of it, by arithmetic."""

from __future__ import annotations

import json
import os
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from script_runs import ON_H100, SCRIPTS, emulate, moved, products

from paracosm.cli.app import main
from paracosm.emulation.device.recording import OP, Recording, load_recording


def flops(recording: Recording) -> int:
    last = recording.iteration(len(recording.steps) - 1)
    return sum(recording.ops[code].flops for code in last.code[last.kind == OP].tolist())


WIDTH, CLASSES, BATCH = 256, 10, 64
PARAMETERS = WIDTH * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run; what the script and the command print lies beside it."""
    folder = tmp_path_factory.mktemp("runs") / "ddp"
    script = SCRIPTS / "ddp_mlp.py"
    command = ["emulate", "--hardware", "dgx-h100", "--world-size", "16", "--out", str(folder)]
    command += ["--iterations", "4"]
    with (folder.parent / "printed").open("a") as printed, redirect_stdout(printed):
        terminal = os.dup(1)
        os.dup2(printed.fileno(), 1)  # of the script, which runs in a process of its own
        try:
            code = main([*command, str(script)])
        finally:
            os.dup2(terminal, 1)
            os.close(terminal)
    assert code == 0
    return folder


def test_a_data_parallel_script_asks_for_what_arithmetic_says(ddp: Path) -> None:
    summary = json.loads((ddp / "summary.json").read_text())
    recording = load_recording(ddp / "device.parquet")
    assert summary["iterations"] == 4  # of 100: enough was seen
    assert sum(moved(recording, "all_reduce")) == 4 * PARAMETERS  # once for two micro-batches
    # Forward one product a layer, backward two, but none for the gradient of the inputs.
    hidden, output = 2 * BATCH * WIDTH * WIDTH, 2 * BATCH * WIDTH * CLASSES
    assert products(recording) == 2 * (2 * hidden + 3 * output)
    assert recording.groups["0"] == tuple(range(16))
    names = [op.name for op in recording.ops]
    assert "aten._fused_adamw_.default" in names  # as on a GPU
    assert any("float16" in op.arguments for op in recording.ops if "addmm" in op.name)
    texts = {each["text"]: each["site"] for each in summary["assumed"]}
    assert list(texts) == ["checks of numbers without overflow or NaN", "losses of 1"]
    assert all(site.startswith("ddp_mlp.py:") for site in texts.values())


def test_the_clock_of_the_script_shows_what_the_job_takes(ddp: Path) -> None:
    """And not what recording takes here, which is a hundred times as long."""
    lines = (ddp.parent / "printed").read_text().splitlines()
    assert any("NVIDIA H100 80GB HBM3" in line for line in lines)
    seconds = [float(line.split()[1]) for line in lines if line.startswith("seconds")]
    (takes,) = [line for line in lines if "an iteration takes" in line]
    iteration = float(takes.partition("an iteration takes ")[2].split()[0])
    assert takes.split("takes ")[1].split()[1] == "us"
    assert seconds[-1] == pytest.approx(iteration * 1e-6, rel=0.02)


def test_its_memory_is_what_it_holds(ddp: Path) -> None:
    memory = json.loads((ddp / "summary.json").read_text())["memory"]
    blocks = sum(-(-4 * size // 512) * 512 for size in (WIDTH * WIDTH, WIDTH, WIDTH * CLASSES, 10))
    held = memory["by_kind"]
    assert held["parameters"] == blocks
    # AdamW's two moments and its count of steps, and DDP's bucket beside them.
    assert 2 * blocks <= held["optimizer"] <= 3 * blocks + 4 * 512
    assert memory["verdict"] == "fits"


def test_other_hardware_and_changes_need_no_other_run(
    ddp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reused recording answers at once, and a changed run has the unchanged one beside it."""
    same = emulate(capsys, ddp)
    assert (
        same["iteration_time"] == json.loads((ddp / "summary.json").read_text())["iteration_time"]
    )
    slower = emulate(capsys, ddp, "--what-if", "workers 3: compute 2x slower")
    assert slower["unchanged"]["iteration_time"] == same["iteration_time"]
    assert 1.2 * same["iteration_time"] < slower["iteration_time"] < 2.1 * same["iteration_time"]
    other = emulate(capsys, ddp, "--hardware", "v100-sxm-16gb", "--launch", "20us")
    assert other["hardware"] == "v100-sxm-16gb"
    assert other["iteration_time"] > same["iteration_time"]


def test_hardware_is_compared_on_one_page(ddp: Path, tmp_path: Path) -> None:
    for name in ("a100-sxm-80gb", "b200-sxm"):
        out = str(tmp_path / name)
        assert main(["emulate", str(ddp), "--hardware", name, "--out", out, "--quiet"]) == 0
    page = tmp_path / "compared.html"
    runs = [str(tmp_path / name) for name in ("a100-sxm-80gb", "b200-sxm")]
    assert main(["report", *runs, "--out", str(page)]) == 0
    text = page.read_text()
    assert all(name in text for name in ("a100-sxm-80gb", "b200-sxm"))


def test_faster_hardware_makes_nothing_slower(
    ddp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [
        emulate(capsys, ddp, "--what-if", change)["iteration_time"]
        for change in ("links: bandwidth 2x", "workers: compute 2x faster", "all_reduce: 2x faster")
    ]
    unchanged = emulate(capsys, ddp)["iteration_time"]
    assert all(time <= unchanged * (1 + 1e-9) for time in times)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware", "h100", "x.py"], 'unknown hardware "h100": did you mean'),
        (["--hardware", "cpu-2-core", "x.py"], "is a CPU: a script is recorded on it as one rank"),
        (["--hardware", "tpu-v5p", "x.py"], "is a TPU: scripts are recorded for GPUs and CPUs"),
        (["--hardware", "h100-sxm", "x.py"], "x.py: no such script"),
        (["--hardware", "h100-sxm", "--rank", "4", "x.py"], "ranks 0 to 3, not 4"),
        (["--hardware", "h100-sxm", "--sharing", "serial", "x.py"], "links are the node's"),
        (["--hardware", "h100-sxm", "--mode", "wire", "x.py"], "cannot be combined with"),
        (
            ["--hardware", "h100-sxm", "--what-if", "worker 9: +1 ms", str(SCRIPTS / "ddp_mlp.py")],
            "emulate --hardware",
        ),
    ],
)
def test_bad_input_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emulate", "--world-size", "4", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_script_that_never_steps_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "none.py"
    script.write_text("import torch\ntorch.ones(3, device='cuda').sum()\n")
    assert main(["emulate", "--hardware", "h100-sxm", "--world-size", "1", str(script)]) == 1
    assert "ended before any optimizer's step" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hardware", "script", "message"),
    [
        (
            "v100-sxm-16gb",
            "torch.ones(4, 4).cuda().bfloat16().mm(torch.ones(4, 4).cuda().bfloat16())",
            "no peak for bfloat16: it has float32, float16 at script.py:2",
        ),
        (
            "h100-sxm",
            "while torch.randn(3, device='cuda').sum().item() > 0.5: pass",
            "a loop that waits until a value changes, which nobody computes",
        ),
        (
            "h100-sxm",
            "torch.ones(3, device='cuda').data_ptr()",
            "the address of a tensor, as a kernel of your own or Triton's takes it, at script.py:2",
        ),
        (
            "h100-sxm",
            "torch.nn.Linear(1 << 24, 1 << 20)",
            "a tensor of 70.37 TB on the host, after 0 B in large tensors, where",
        ),
        (
            "h100-sxm",
            "raise ValueError('world size 1 is not divisible by 2')",
            "ended with exit code 1: ValueError: world size 1 is not divisible by 2",
        ),
    ],
)
def test_what_cannot_be_is_said_with_its_line(
    hardware: str, script: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import torch\n{script}\n")
    command = ["emulate", "--hardware", hardware, "--world-size", "1", "--output", "none"]
    assert main([*command, str(path)]) == 1
    assert message in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
def test_a_pipeline_runs_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = SCRIPTS / "pipeline.py"
    found = emulate(capsys, *ON_H100, "--world-size", 2, script)
    assert found["rank"] == [0, 1]
    assert found["collectives"]["send"] == {
        "count": 3,
        "bytes": 3 * 4 * 16 * 128,
        "time": pytest.approx(found["collectives"]["recv"]["time"]),
    }
    assert found["breakdown"]["bubble"] > 0


@pytest.mark.slow
def test_sharding_and_functional_collectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two blocks of 64 x 256 split in two by tensor parallelism, and in two again by FSDP2."""
    folder = tmp_path / "run"
    script = SCRIPTS / "sharded.py"
    emulate(capsys, *ON_H100, "--world-size", 4, "--out", folder, script)
    recording = load_recording(folder / "device.parquet")
    own = 64 * 128 + 128 + 128 * 64 + 64  # of a block, after tensor parallelism
    assert moved(recording, "all_gather") == [4 * own] * 4  # forward and backward, two blocks
    assert moved(recording, "reduce_scatter") == [4 * own] * 2
    # The output of each block, added up by the ranks that share it; of the gradient of the input,
    # that of the second alone, since nobody asks for the first one's.
    assert sorted(moved(recording, "all_reduce")) == [4 * 8 * 64] * 3
    assert len(set(recording.groups.values())) >= 2
    assert np.unique(recording.stream).size > 2


@pytest.mark.slow
def test_a_compiled_chain_reads_and_writes_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    script = SCRIPTS / "compiled.py"
    found = emulate(capsys, *ON_H100, "--world-size", 1, "--out", folder, script)
    recording = load_recording(folder / "device.parquet")
    last = recording.iteration(len(recording.steps) - 1)
    ops = [recording.ops[code] for code in last.code[last.kind == OP].tolist()]
    forward = next(op for op in ops if op.name == "compiled.pointwise")
    size = 4 << 20
    # Input and scale are read; the result is written, and relu's, which eager PyTorch keeps for the
    # gradient of the scale.
    assert (forward.bytes_read, forward.bytes_written) == (2 * size, 2 * size)
    assert not any(op.name in ("aten.mul.Tensor", "aten.relu.default") for op in ops)
    assert any("nothing is compiled" in note["text"] for note in found["notes"])


@pytest.mark.slow
def test_parameters_that_data_parallelism_looks_for_in_vain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether any rank used a parameter is a number of its own to reduce, from pinned memory."""
    script = tmp_path / "unused.py"
    text = (SCRIPTS / "ddp_mlp.py").read_text()
    given = "device_ids=[device.index]"
    assert given in text
    script.write_text(text.replace(given, f"{given}, find_unused_parameters=True"))
    found = emulate(capsys, *ON_H100, "--world-size", 8, script)
    assert found["iterations"] == 3
    assert found["collectives"]["all_reduce"]["bytes"] > 4 * PARAMETERS
