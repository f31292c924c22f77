"""A training script of a GPU, as it is: mixed precision, a scaler, clipping, accumulation."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, CLASSES, BATCH = 256, 10, 64

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)).to(device)
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for _ in range(100):
    begin = time.perf_counter()
    for micro in range(2):
        inputs = torch.randn(BATCH, WIDTH).pin_memory().to(device, non_blocking=True)
        targets = torch.randint(0, CLASSES, (BATCH,)).to(device)
        model.require_backward_grad_sync = micro == 1
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(inputs), targets) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print("loss", loss.item(), torch.cuda.get_device_name(), flush=True)
    print("seconds", time.perf_counter() - begin, flush=True)
dist.destroy_process_group()
