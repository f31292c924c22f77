"""After the shape of PyTorch's tutorial on several GPUs: one spawned process for each of them."""

import os

import torch
import torch.multiprocessing as mp
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel


def main(rank, world, epochs):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    torch.cuda.set_device(rank)
    init_process_group(backend="nccl", rank=rank, world_size=world)
    model = DistributedDataParallel(torch.nn.Linear(20, 1).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        optimizer.zero_grad()
        found = model(torch.rand(32, 20).to(rank))
        torch.nn.functional.mse_loss(found, torch.rand(32, 1, device=rank)).backward()
        optimizer.step()
        print(f"[GPU{rank}] epoch {epoch}")
    destroy_process_group()


if __name__ == "__main__":
    size = torch.cuda.device_count()
    mp.spawn(main, args=(size, 3), nprocs=size)
