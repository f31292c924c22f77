"""A pipeline by PyTorch's own stages and schedules; stages learn shapes from one another."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

WIDTH, BATCH, MICROBATCHES = 32, 16, 4

name = sys.argv[1]
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
schedule_class = getattr(schedules, name)
each = 2 if issubclass(schedule_class, schedules.PipelineScheduleMulti) else 1
parts = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).to(device) for _ in range(each)]
stages = [
    PipelineStage(part, rank + place * world, each * world, device)
    for place, part in enumerate(parts)
]
schedule = schedule_class(
    stages if each > 1 else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss
)
optimizer = torch.optim.SGD(
    [parameter for part in parts for parameter in part.parameters()], lr=0.1
)
while True:
    optimizer.zero_grad()
    x = torch.randn(BATCH, WIDTH, device=device)
    losses: list[torch.Tensor] = []
    last = {"target": x, "losses": losses} if rank == world - 1 else {}
    schedule.step(*([x] if rank == 0 else []), **last)
    optimizer.step()
