"""After the shape of PyTorch's example of tensor parallelism."""

import os

import torch
from torch.distributed import destroy_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

kind = torch.accelerator.current_accelerator().type
mesh = init_device_mesh(device_type=kind, mesh_shape=(int(os.environ["WORLD_SIZE"]),))
layers = [torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
model = torch.nn.Sequential(*layers).to(kind)
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
for seed in range(3):
    torch.manual_seed(seed)
    model(torch.rand(20, 8, device=kind)).sum().backward()
    optimizer.step()
print(f"rank {mesh.get_rank()} on {kind}")
destroy_process_group()
