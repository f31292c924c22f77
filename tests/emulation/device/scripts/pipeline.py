"""Two stages that send activations one way and gradients the other, without a library."""

import os

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH, MICROBATCHES = 128, 16, 3

dist.init_process_group("nccl")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
stage = nn.Linear(WIDTH, WIDTH).to(device)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    kept = []
    for _ in range(MICROBATCHES):
        if rank == 0:
            inputs = torch.randn(BATCH, WIDTH, device=device)
            outputs = stage(inputs)
            dist.send(outputs.detach(), 1)
        else:
            inputs = torch.empty(BATCH, WIDTH, device=device, requires_grad=True)
            dist.recv(inputs.data, 0)
            outputs = stage(inputs).pow(2).mean()
        kept.append((inputs, outputs))
    for inputs, outputs in kept:
        if rank == 0:
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, 1)
            outputs.backward(gradient)
        else:
            outputs.backward()
            dist.send(inputs.grad, 0)
    optimizer.step()
dist.destroy_process_group()
