"""Scripts that exchange objects, or ask for what no emulated rank can do, in both modes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import tempfile
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
"""
OBJECTS = """
gathered = [None] * world if rank == 0 else None
dist.gather_object({"rank": rank}, gathered, 0)
assert gathered == [{"rank": 0}] * world
held = [None]
dist.scatter_object_list(held, [{"for": i} for i in range(world)], 0)
assert held == [{"for": 0}]
held = ["mine"]
dist.broadcast_object_list(held, world - 1)
assert held == ["mine"]
"""
STATES = """
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(8)]))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
optimizer.consolidate_state_dict(0)
assert len(optimizer.state_dict()["state"]) == 16
"""
CHECKPOINTS = """
import torch.distributed.checkpoint as checkpoint

with tempfile.TemporaryDirectory() as folder:
    state = {"model": torch.nn.Linear(8, 8).state_dict()}
    checkpoint.save(state, checkpoint_id=folder)
    checkpoint.async_save(state, checkpoint_id=folder + "/again").result()
"""
CALLS = """
import os
import torch.distributed.rpc as rpc

rpc.init_rpc("worker", rank=0, world_size=int(os.environ["WORLD_SIZE"]))
"""
KEYS = """
dist.distributed_c10d._get_default_store().wait(["of rank 1"])
"""
pytestmark = pytest.mark.slow
MODES = ("backend", "wire")


def emulate(script: Path, mode: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--mode", mode]
    done = subprocess.run(
        [*command, "--world-size", "4", str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_objects_of_emulated_ranks_are_sound(tmp_path: Path, mode: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + OBJECTS + STATES + CHECKPOINTS)
    code, said = emulate(script, mode)
    assert code == 0, said


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("source", "why"),
    [
        pytest.param(CALLS, "rpc is not emulated", id="rpc"),
        pytest.param(BEGIN + KEYS, "emulated ranks run no script", id="store"),
    ],
)
def test_what_waits_for_peers_is_refused_by_name(
    tmp_path: Path, source: str, why: str, mode: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(source)
    code, said = emulate(script, mode)
    assert code == 1
    assert why in said
