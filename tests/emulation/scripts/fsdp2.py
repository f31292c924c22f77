"""Train a small network with FSDP2, its parameters sharded over all ranks or over each row."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=1, help="more than 1: HSDP")
    parser.add_argument("--constant", action="store_true", help="start all weights alike")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(options.backend)
    world = dist.get_world_size()
    if options.replicas > 1:
        shape = (options.replicas, world // options.replicas)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))

    blocks = [
        nn.Sequential(nn.Linear(options.hidden, options.hidden), nn.Tanh())
        for _ in range(options.layers)
    ]
    model = nn.Sequential(*blocks, nn.Linear(options.hidden, options.hidden))
    if options.constant:
        for parameter in model.parameters():
            nn.init.constant_(parameter, 1 / options.hidden)
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    inputs = torch.randn(64, options.hidden)
    targets = inputs.mean(dim=1, keepdim=True).expand(-1, options.hidden)
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
