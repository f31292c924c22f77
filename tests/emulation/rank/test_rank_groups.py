"""Process groups in all the ways in which a script may make them, in backend mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rank_processes import Ran

from paracosm.emulation.records import Group

Run = Callable[..., Ran]

MAKING = """
import os, torch, torch.distributed as dist

os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
assert dist.is_nccl_available() and dist.is_gloo_available() and dist.is_backend_available("nccl")

def ends(backend=None, **options):
    dist.init_process_group(backend, **options)
    found = dist.get_backend(), dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    assert not dist.is_initialized()
    return found

try:
    dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
except NotImplementedError as error:
    print(error)
print(ends())
print(ends("nccl"))
print(ends("mpi"))
print(ends("cpu:gloo,cuda:nccl"))
print(ends("gloo", init_method="tcp://192.0.2.1:29500", rank=5, world_size=8))
print(ends("gloo", init_method="tcp://192.0.2.1:29500?rank=5&world_size=8"))
print(ends("gloo", init_method="file:///tmp/nowhere/at/all", rank=5, world_size=8))
store = dist.TCPStore("192.0.2.1", 29500, 8, False)
print(ends("gloo", store=store, rank=5, world_size=8))

try:
    dist.init_process_group("glo")
except Exception as error:
    print(type(error).__name__, error)

dist.init_process_group("gloo", device_id=torch.device("cpu"))
try:
    dist.split_group(split_ranks=[[4, 5]])
except RuntimeError as error:
    print(error)
dist.destroy_process_group()

dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
print(dist.get_backend_config())
mine = dist.new_group([1, 5, 6])
print(dist.get_process_group_ranks(mine), dist.get_rank(mine), dist.get_backend(mine))
print(dist.new_group([0, 1]) == dist.GroupMember.NON_GROUP_MEMBER)
print(dist.new_group([0, 1], use_local_synchronization=True))
local = dist.new_group([5, 7], backend="gloo", use_local_synchronization=True)
print(dist.get_backend(local), dist.get_world_size(local))
half = dist.split_group(split_ranks=[[0, 1, 2, 3], [4, 5, 6, 7]])
print(dist.get_process_group_ranks(half), dist.get_rank(half), dist.get_backend(half))
print(dist.get_process_group_ranks(dist.split_group(mine, [[0], [1, 2]])))
print(dist.split_group(mine, [[0]]))
print(dist.get_process_group_ranks(dist.new_subgroups(group_size=2)[0]))
for group in (None, mine, local, half):
    data = torch.ones(1)
    dist.all_reduce(data, group=group)
    dist.barrier(group, device_ids=[0])
    print(int(data))
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tensor"))
print(mesh["shard"].get_local_rank(), mesh.get_coordinate())
print(mesh["replicate", "shard"]._flatten().size())
try:
    store = dist.distributed_c10d._get_default_store()
    store.wait(["what rank 0 would set"], __import__("datetime").timedelta(seconds=0.1))
except dist.DistStoreError:
    print("nobody sets it")
"""

PRINTED = """
ProcessGroupGloo (init_process_group and new_group make emulated groups) at train.py:16: not \
supported in backend mode
('undefined', 5, 8)
('nccl', 5, 8)
('mpi', 5, 8)
('cpu:gloo,cuda:nccl', 5, 8)
('gloo', 5, 8)
('gloo', 5, 8)
('gloo', 5, 8)
('gloo', 5, 8)
AssertionError Unknown backend type glo
No device associated with the default pg, not safe to split any process groups
cuda:nccl
[1, 5, 6] 1 nccl
True
None
gloo 2
[4, 5, 6, 7] 1 nccl
[5, 6]
None
[4, 5]
8
3
2
4
0 (1, 0, 1)
4
nobody sets it
"""


def test_groups_are_made_as_a_script_asks(run_rank: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MAKING)
    ran = run_rank(str(script), world_size=8, rank=5)
    assert ran.exit_code == 0, ran.err
    assert ran.out.splitlines() == PRINTED.strip().splitlines()
    asked = [group.backend for group in ran.of(Group)]
    assert asked[:4] == ["undefined", "nccl", "mpi", "cpu:gloo,cuda:nccl"]
    assert (5, 7) in [group.members for group in ran.of(Group) if group.backend == "gloo"]
