"""After the shape of PyTorch's tutorial on distributed applications: processes of one's own."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, size):
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 20)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()
    print(f"rank {rank} has trained")


def begin(rank, size, run, backend="gloo"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29501"
    dist.init_process_group(backend, rank=rank, world_size=size)
    run(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    processes = [mp.Process(target=begin, args=(rank, 4, run)) for rank in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
