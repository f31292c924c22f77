"""After the shape of nanoGPT's train.py: pinned batches, autocast, gradients of several batches."""

import os
from contextlib import nullcontext

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

LENGTH, WORDS = 16, 64

init_process_group(backend="nccl")
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = f"cuda:{local_rank}"
torch.cuda.set_device(device)
torch.manual_seed(1337 + rank)
torch.backends.cuda.matmul.allow_tf32 = True
on_cuda = "cuda" in device
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
context = torch.amp.autocast(device_type="cuda", dtype=dtype) if on_cuda else nullcontext()
words = torch.randint(WORDS, (5000,))


def batch():
    starts = torch.randint(len(words) - LENGTH - 1, (4,))
    x = torch.stack([words[i : i + LENGTH] for i in starts])
    y = torch.stack([words[i + 1 : i + 1 + LENGTH] for i in starts])
    return tuple(each.pin_memory().to(device, non_blocking=True) for each in (x, y))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 32)
        self.places = torch.nn.Embedding(LENGTH, 32)
        self.block = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
        self.head = torch.nn.Linear(32, WORDS)

    def forward(self, x, y):
        places = torch.arange(0, x.size(1), dtype=torch.long, device=x.device)
        found = self.head(self.block(self.words(x) + self.places(places)))
        return torch.nn.functional.cross_entropy(found.view(-1, WORDS), y.view(-1))


model = Gpt()
model.to(device)
scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=on_cuda)
model = DistributedDataParallel(model, device_ids=[local_rank])
x, y = batch()
for iteration in range(4):
    for micro in range(2):
        model.require_backward_grad_sync = micro == 1
        with context:
            loss = model(x, y) / 2
        x, y = batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iteration}: loss {2 * loss.item():.4f}")
destroy_process_group()
