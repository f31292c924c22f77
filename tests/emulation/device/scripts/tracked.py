"""A step whose memory PyTorch's own trackers follow: written as JSON, by kind."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH, DEPTH, BATCH = 512, 4, 4096


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


def main() -> None:
    path, kind, *options = sys.argv[1:]
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    with torch.device("cuda"):
        model = Model("again" in options)
        inputs, labels = torch.empty(BATCH, WIDTH), torch.zeros(BATCH, dtype=torch.long)
    tracker: MemTracker
    if kind == "fsdp":
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        trained: nn.Module = fully_shard(model, mp_policy=policy)
        optimizer = torch.optim.AdamW(trained.parameters(), fused=True)
        tracker = FSDPMemTracker(trained, optimizer)
        tracker.track_inputs((inputs, labels))
    else:
        tracker = MemTracker()
        tracker.track_external(model, inputs, labels)
        with tracker:  # which sees the buckets of gradients that are made here
            trained = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(trained.parameters(), fused=True)

    def step() -> None:
        loss = nn.functional.cross_entropy(trained(inputs), labels)
        loss.backward()
        optimizer.step()

    with tracker:
        step()
    snapshots = tracker.get_tracker_snapshot("peak").items()
    (peak,) = (kinds for device, kinds in snapshots if device.type == "cuda")
    by_kind = {getattr(key, "value", key): size for key, size in peak.items()}
    Path(path).write_text(json.dumps(by_kind))
    optimizer.zero_grad()
    step()


main()
