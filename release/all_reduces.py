"""All-reduces of a megabyte, one an iteration, of which each sum is checked: `all_reduces.py cuda`.

With `gloo` or `nccl` of PyTorch, or under `paracosm emulate`.
"""

import sys

import torch
import torch.distributed as dist

device = torch.device(sys.argv[1])
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
weight = torch.nn.Parameter(torch.ones(250_000, device=device))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(20):
    weight.grad = torch.ones_like(weight)
    dist.all_reduce(weight.grad)
    if not (weight.grad == dist.get_world_size()).all():
        sys.exit(f"a sum over {dist.get_world_size()} ranks is {weight.grad[0].item()}")
    optimizer.step()
dist.destroy_process_group()
