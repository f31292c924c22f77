"""Train a small network tensor-parallel with DTensor, and data-parallel with FSDP2 beside it."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


class Block(nn.Module):
    """Two linear layers with a nonlinearity between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.down(torch.relu(self.up(inputs)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--replicas", type=int, default=1, help="more than 1: FSDP2 over them")
    parser.add_argument("--constant", action="store_true", help="start all weights alike")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(options.backend)
    shape = (options.replicas, dist.get_world_size() // options.replicas)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(*[Block(options.width) for _ in range(2)])
    if options.constant:
        for parameter in model.parameters():
            nn.init.constant_(parameter, 1 / options.width)
    plan = {}
    for i in range(len(model)):
        plan |= {f"{i}.up": ColwiseParallel(), f"{i}.down": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], plan)
    if options.replicas > 1:
        for block in model:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    inputs = torch.randn(32, options.width)
    targets = inputs.mean(dim=1, keepdim=True).expand(-1, options.width)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
