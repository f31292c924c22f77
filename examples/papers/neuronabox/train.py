"""A training script of data parallelism, as anybody writes it: nothing in it knows of emulation.

    torchrun --nproc-per-node=2 train.py --job balanced
    paracosm emulate --world-size 8 --latency 50us --bandwidth 10Gbit/s train.py --job balanced

Jobs with fixed-time compute wait, as for an accelerator, so that the same work takes the same time
in every run; the others compute.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Fixed:
    """Fixed-time compute.

    Attributes:
        layers: how many.
        size: bytes of a layer's gradients.
        forward, backward: seconds of a layer.
        bucket: MB of DDP's buckets.
    """

    layers: int
    size: int
    forward: float
    backward: float
    bucket: float


KB, MB = 1 << 10, 1 << 20
FIXED = {
    "communication-bound": Fixed(8, 2 * MB, 1e-3, 2e-3, 4.0),
    "balanced": Fixed(8, 3 * MB // 2, 4e-3, 12e-3, 3.0),
    "compute-bound": Fixed(40, 64 * KB, 1e-3, 2.5e-3, 0.05),
    "overlapped": Fixed(8, MB, 2e-3, 2e-3, 0.5),
}
REAL = {"cnn": 4.0, "mlp": 4.0, "transformer": 2.0}  # MB of DDP's buckets


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    if options.job in FIXED:
        fixed = FIXED[options.job]
        model: nn.Module = nn.Sequential(*(Waiting(fixed) for _ in range(fixed.layers)))
        bucket, batch = fixed.bucket, lambda: torch.ones(1)
    else:
        model, batch = MODELS[options.job]()
        bucket = REAL[options.job]
    trained = DistributedDataParallel(model, bucket_cap_mb=bucket)
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    ends, cpu = [], []
    for number in range(options.warm + options.iterations + 1):
        loss = trained(batch()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number >= options.warm:
            ends.append(time.monotonic())
            cpu.append(time.process_time())
        if number == options.warm // 2:
            print(json.dumps("training"), flush=True)
    if options.times is not None and dist.get_rank() == 0:
        seconds = [late - early for early, late in pairwise(ends)]
        written = {"begin": ends[0], "seconds": seconds, "cpu": cpu[-1] - cpu[0]}
        options.times.write_text(json.dumps(written))
    dist.destroy_process_group()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=[*FIXED, *REAL], default="overlapped")
    parser.add_argument("--warm", type=int, default=6, help="iterations that do not count")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--times", type=Path, help="file for the seconds of iterations")
    return parser.parse_args()


class Waiting(nn.Module):
    """A layer that takes its time and has gradients of a size."""

    def __init__(self, fixed: Fixed) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(fixed.size // 4))
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        return _Wait.apply(x, self.weight, self.fixed)


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, fixed: Fixed) -> Tensor:
        ctx.fixed, ctx.gradient = fixed, torch.zeros_like(weight)
        time.sleep(fixed.forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, Tensor, None]:
        time.sleep(ctx.fixed.backward)
        return above[0], ctx.gradient, None


Made = tuple[nn.Module, Callable[[], Tensor]]


def _cnn() -> Made:
    layers: list[nn.Module] = []
    wide = 3
    for channels in (32, 64, 128, 256):
        layers += [nn.Conv2d(wide, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
        wide = channels
    layers += [nn.Flatten(), nn.Linear(4 * wide, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), lambda: torch.randn(16, 3, 32, 32)


def _mlp() -> Made:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(768, 768), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(768, 10)), lambda: torch.randn(128, 768)


def _transformer() -> Made:
    layer = nn.TransformerEncoderLayer(192, 4, 768, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3), lambda: torch.randn(8, 32, 192)


MODELS = {"cnn": _cnn, "mlp": _mlp, "transformer": _transformer}


if __name__ == "__main__":
    main()
