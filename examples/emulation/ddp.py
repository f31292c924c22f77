"""An ordinary DDP script: a small convolutional network on random images.

torchrun --nproc-per-node=2 ddp.py                        # as it is meant
paracosm emulate --world-size 64 --bandwidth 10Gbit/s ddp.py    # as rank 0 of 64
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()

    dist.init_process_group()
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(make_model(), bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(options.steps):
        images = torch.randn(options.batch, 3, 32, 32)
        labels = torch.randint(10, (options.batch,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    dist.destroy_process_group()


def make_model() -> nn.Module:
    """Return a network of 4.8 million parameters, most of them in its last layers."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4096, 1024),
        nn.ReLU(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


if __name__ == "__main__":
    main()
