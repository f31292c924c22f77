"""After the shape of PyTorch's example of FSDP2, which names no device itself."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

if torch.accelerator.device_count() < 2:
    print("Unable to locate sufficient gpus to run this example. Exiting.")
    raise SystemExit
kind = torch.accelerator.current_accelerator()
rank = int(os.environ["LOCAL_RANK"])
device = torch.device(f"{kind}:{rank}")
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device), device_id=device)
with torch.device("meta"):
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.to_empty(device=device)
for parameter in model.parameters():
    torch.nn.init.zeros_(parameter)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    model(torch.randn(32, 64, device=device)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
print(f"trained on {device}")
dist.destroy_process_group()
