"""Scripts after the shape of published ones, unmodified, in both modes: what each must print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paracosm

SCRIPTS = Path(__file__).parent / "scripts"
PRINTED = {
    "nanogpt": "iter 3: loss",
    "spawned": "[GPU0] epoch 2",
    "processes": "rank 0 has trained",
    "fsdp2": "trained on cuda:0",
    "tensor_parallel": "rank 0 on cuda",
}
OF_LIBRARIES = {
    "trainer": "device cuda:0, 4 ranks",
    "accelerated": "device cuda:0, 4 losses",
    "lightning_module": "4 ranks",
}


def emulate(script: Path, *flags: str, python: str = sys.executable) -> tuple[dict[str, Any], str]:
    """Run a script as rank 0 of 4, and return the summary and what it printed."""
    command = [python, "-m", "paracosm.cli.app", "emulate", "--json", "--world-size", "4"]
    done = subprocess.run(
        [*command, "--device", "cpu", *flags, str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["status"] == "done" else 1), done.stderr
    return found, done.stderr


def trains(script: str, printed: str, mode: str, python: str = sys.executable) -> None:
    found, said = emulate(SCRIPTS / f"{script}.py", "--mode", mode, python=python)
    assert found["status"] == "done", said
    assert found["iterations"] >= 3
    assert found["collectives"]
    assert printed in said


def test_a_script_that_spawns_a_rank_for_each_gpu_trains_as_one_of_them() -> None:
    trains("spawned", PRINTED["spawned"], "backend")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["backend", "wire"])
@pytest.mark.parametrize("script", PRINTED)
def test_published_shapes(script: str, mode: str) -> None:
    trains(script, PRINTED[script], mode)


def environment_with(folder: Path, *packages: str) -> str:
    """Install packages beside those of this environment, and return their Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (site,) = folder.glob("lib/*/site-packages")
    outer = [path for path in sys.path if "packages" in path]
    source = Path(paracosm.__file__).parents[1]  # its own .pth is not read there
    (site / "outer.pth").write_text("\n".join([*outer, str(source)]))
    python = str(folder / "bin" / "python")
    asked = [python, "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode:
        pytest.skip(f"cannot install {', '.join(packages)}: {done.stderr[-200:]}")
    return python


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = os.environ.get("TEST_LIBRARIES_PYTHON")  # a Python that has them already
    folder = tmp_path_factory.mktemp("libraries")
    return found or environment_with(folder, "transformers", "accelerate", "lightning")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["backend", "wire"])
@pytest.mark.parametrize("script", OF_LIBRARIES)
def test_libraries(script: str, mode: str, libraries: str) -> None:
    trains(script, OF_LIBRARIES[script], mode, libraries)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.11.0", "2.12.0"])
def test_other_versions_of_pytorch(version: str, tmp_path: Path) -> None:
    python = environment_with(tmp_path / "env", f"torch=={version}")
    for script, printed in PRINTED.items():
        trains(script, printed, "backend", python)


def written(folder: Path, *lines: str) -> Path:
    script = folder / "script.py"
    script.write_text("\n".join(["import torch, torch.distributed as dist", *lines]))
    return script


def test_what_only_a_gpu_does_is_refused_with_its_line(tmp_path: Path) -> None:
    does = (
        "with torch.cuda.stream(stream=torch.cuda.Stream()), torch.cuda.device(device=0):",
        "    with torch.random.fork_rng([0], device_type='cuda'): print('on a stream')",
        "torch.cuda.CUDAGraph()",
    )
    found, said = emulate(written(tmp_path, "dist.init_process_group()", *does))
    assert "on a stream" in said
    assert found["status"] == "failed"
    assert any("torch.cuda.CUDAGraph at script.py:5: " in note["text"] for note in found["notes"])


def test_an_error_of_a_collective_by_nccl_is_shown_itself(tmp_path: Path) -> None:
    lines = ("dist.init_process_group('nccl')", "dist.broadcast(torch.ones(1), src=99)")
    found, said = emulate(written(tmp_path, *lines))
    assert found["status"] == "failed"
    assert "RuntimeError: there is no rank 99 in a group of 4" in said
    assert "_nccl_version" not in said


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["backend", "wire"])
@pytest.mark.parametrize("device", ["", ", device_id=torch.cuda.current_device()"])
def test_fsdp1_shards_within_a_machine(tmp_path: Path, mode: str, device: str) -> None:
    lines = (
        "from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy",
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy",
        "dist.init_process_group('nccl')",
        "layers, policy = torch.nn.Sequential(torch.nn.Linear(7, 8)), {torch.nn.Linear}",
        "how = {'sharding_strategy': ShardingStrategy.HYBRID_SHARD, 'use_orig_params': True}",
        "how |= {'auto_wrap_policy': ModuleWrapPolicy(policy)}",
        f"model = FullyShardedDataParallel(layers.cuda(), **how{device})",
        "optimizer = torch.optim.AdamW(model.parameters())",
        "for _ in range(3):",
        "    model(torch.ones(2, 7, device='cuda')).sum().backward()",
        "    optimizer.step()",
        "from torch.distributed.fsdp import FullStateDictConfig, StateDictType",
        "from torch.distributed.fsdp import FullOptimStateDictConfig",
        "whole = FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True)",
        "with model.state_dict_type(model, StateDictType.FULL_STATE_DICT, *whole):",
        "    print([len(value) for value in model.state_dict().values()])",
        "    print(sorted(model.optim_state_dict(model, optimizer)['state']))",
    )
    script = written(tmp_path, *lines)
    found, said = emulate(script, "--mode", mode, "--local-world-size", "2")
    assert found["status"] == "done", said
    assert "[8, 8]\n['0.bias', '0.weight']" in said
    # 64 parameters: all are added up in a machine, a half of the sums over the two machines.
    kinds = found["collectives"]
    if mode == "backend":  # gloo adds up where it should scatter
        assert kinds["reduce_scatter"]["bytes"] == 3 * 64 * 4
        assert kinds["all_reduce"]["bytes"] == 3 * 32 * 4


@pytest.mark.slow
def test_attention_is_sharded_on_the_cpu_as_on_a_gpu(tmp_path: Path) -> None:
    lines = (
        "from torch.distributed.device_mesh import init_device_mesh",
        "from torch.distributed.tensor import Shard, distribute_tensor",
        "from torch.nn.functional import scaled_dot_product_attention as attend",
        "dist.init_process_group('nccl')",
        "mesh = init_device_mesh('cuda', (4,))",
        "whole = [torch.randn(4, 4, 6, 8, device='cuda', requires_grad=True) for _ in range(3)]",
        "found = attend(*whole, is_causal=True)",
        "found.sum().backward()",
        "for of in (0, 1):",  # examples, heads
        "    parts = [distribute_tensor(part.detach(), mesh, [Shard(of)]) for part in whole]",
        "    output = attend(*(part.requires_grad_() for part in parts), is_causal=True)",
        "    output.sum().backward()",
        "    torch.testing.assert_close(output.to_local(), found.narrow(of, 0, 1))",
        "    for part, all in zip(parts, whole):",
        "        torch.testing.assert_close(part.grad.to_local(), all.grad.narrow(of, 0, 1))",
    )
    found, said = emulate(written(tmp_path, *lines))
    assert found["exit_code"] == 0, said


@pytest.mark.slow
def test_stages_of_a_traced_model_are_built_for_the_cpu(tmp_path: Path) -> None:
    lines = (
        "from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline",
        "dist.init_process_group('nccl')",
        "class Layer(torch.nn.Linear):",
        "    def forward(self, values):",
        "        added = torch.zeros(8, device=values.device)",
        "        return torch.nn.functional.linear(values, self.weight) + added",
        "model = torch.nn.Sequential(*(Layer(8, 8) for _ in range(4))).cuda()",
        "cuts = {str(layer): SplitPoint.BEGINNING for layer in (1, 2, 3)}",
        "traced = pipeline(model, (torch.ones(2, 8, device='cuda'),), split_spec=cuts)",
        "stage = traced.build_stage(0, torch.device('cuda:0'))",
        "ScheduleGPipe(stage, 4).step(torch.ones(8, 8, device='cuda'))",
    )
    found, said = emulate(written(tmp_path, *lines))
    assert found["exit_code"] == 0, said
    # Micro-batches that are sent on, and whether the stages infer: a number.
    assert found["collectives"]["send"]["bytes"] == 4 * 2 * 8 * 4 + 4


@pytest.mark.slow
def test_a_script_that_ends_before_it_trains_is_not_emulated(tmp_path: Path) -> None:
    lines = ("dist.init_process_group()", "dist.barrier()", "print('no data: ending')")
    found, _ = emulate(written(tmp_path, *lines))
    assert found["status"] == "failed"
    assert any("ended before its first iteration" in each["text"] for each in found["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["backend", "wire"])
def test_a_collective_in_a_forked_process_is_refused(tmp_path: Path, mode: str) -> None:
    lines = (
        "import multiprocessing as mp",
        "dist.init_process_group('gloo')",
        "def work(): dist.all_reduce(torch.ones(3))",
        "child = mp.get_context('fork').Process(target=work)",
        "child.start(), child.join()",
        "raise SystemExit(child.exitcode)",
    )
    found, said = emulate(written(tmp_path, *lines), "--mode", mode)
    assert found["status"] == "failed"
    assert "all_reduce at script.py:4, in a process that the script forked" in said


@pytest.mark.slow
def test_another_number_of_spawned_ranks_says_which_world_it_makes(tmp_path: Path) -> None:
    script = written(tmp_path, "torch.multiprocessing.spawn(print, nprocs=3)")
    found, said = emulate(script)
    assert found["exit_code"] == 1
    assert "the script spawns 3 ranks at script.py:2, but 4 are emulated: --world-size 3" in said


@pytest.mark.slow
def test_a_script_under_python_alone_is_a_rank_as_under_torchrun(tmp_path: Path) -> None:
    told = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    out = tmp_path / "run"
    told |= {"PARACOSM_WORLD_SIZE": "4", "PARACOSM_DEVICE": "cpu", "PARACOSM_OUT": str(out)}
    script = str(SCRIPTS / "nanogpt.py")
    subprocess.run([sys.executable, script], env=told, check=True, timeout=300)
    assert json.loads((out / "summary.json").read_text())["iterations"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("script", PRINTED)
def test_each_runs_on_hardware_that_is_not_there(script: str) -> None:
    """Recorded to its third iteration, in which most print less than in a whole run."""
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--json", "--world-size", "4"]
    done = subprocess.run(
        [*command, "--hardware", "h100-sxm", str(SCRIPTS / f"{script}.py")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kind"] == "script"
    assert found["iterations"] == 3
    assert found["iteration_time"] > 0
    assert found["collectives"]
    assert found["memory"]["verdict"] == "fits"
