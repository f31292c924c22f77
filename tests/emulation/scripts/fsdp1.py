"""Train a small network with FullyShardedDataParallel, and save a checkpoint where asked to."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--save", type=Path, help="folder of a checkpoint")
    options = parser.parse_args()

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(options.backend)
    layers = [nn.Linear(options.width, options.width) for _ in range(3)]
    model = FullyShardedDataParallel(
        nn.Sequential(*layers),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, options.width)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
    if options.save:
        checkpoint.save(get_model_state_dict(model), checkpoint_id=options.save)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
