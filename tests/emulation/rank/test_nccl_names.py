"""What stands behind `is_nccl_available()` in torch.distributed works, in both modes."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from rank_processes import SCRIPTS, start
from torch.distributed import distributed_c10d as c10d

_NAMES = {"ProcessGroupNCCL", "is_nccl_available"}


def test_every_function_that_asks_for_nccl_is_called():
    sys.path.insert(0, str(SCRIPTS))
    try:
        import nccl_names
    finally:
        sys.path.remove(str(SCRIPTS))
    source = ast.parse(Path(c10d.__file__).read_text())
    ask = {
        function.name
        for function in ast.walk(source)
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(part, ast.Name) and part.id in _NAMES for part in ast.walk(function))
    }
    assert ask <= nccl_names.CALLS.keys()


@pytest.mark.parametrize(
    ("mode", "backend", "debug"),
    [
        pytest.param("backend", "nccl", "OFF", marks=pytest.mark.slow),
        pytest.param("backend", "nccl", "DETAIL", marks=pytest.mark.slow),
        pytest.param("backend", "gloo", "OFF", marks=pytest.mark.slow),
        ("backend", "cpu:gloo,cuda:nccl", "OFF"),
        pytest.param("wire", "nccl", "OFF", marks=pytest.mark.slow),
        pytest.param("wire", "gloo", "OFF", marks=pytest.mark.slow),
    ],
)
def test_functions_that_ask_for_nccl_work(mode: str, backend: str, debug: str):
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--world-size", "2"]
    done = start(
        [*command, "--mode", mode, str(SCRIPTS / "nccl_names.py"), backend],
        TORCH_DISTRIBUTED_DEBUG=debug,
    )
    said = done.stdout + done.stderr
    assert "failed:" not in said
    assert "NameError" not in said
    assert "is_nccl_available True" in said, said
    assert "_new_process_group_helper 2" in said
    assert "_tensor_to_object [3]" in said
    assert "_abort_process_group None" in said
    assert "Set timeout is now only supported" not in said
    if mode == "backend":
        assert f"is nccl {backend != 'gloo'}" in said


def test_a_time_out_that_is_set_is_that_of_the_group(tmp_path: Path):
    script = tmp_path / "timeout.py"
    script.write_text(
        "import datetime, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(3):\n    dist.all_reduce(torch.ones(4))\n"
        "group = dist.group.WORLD\n"
        "dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=7), group)\n"
        "print('seconds', group.options._timeout.total_seconds())\n"
        "try:\n    dist.ProcessGroupNCCL(None, 0, 1)\n"
        "except NotImplementedError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--world-size", "2"]
    done = start([*command, str(script)])
    assert "seconds 7.0" in done.stdout
    assert "make emulated groups) at timeout.py:9: not supported in backend mode" in done.stdout
