"""Training scripts that compute, written after the shape of published ones; as anybody runs them.

    torchrun --nproc-per-node=2 emulation_jobs.py --job gpt

Nothing in it knows of emulation. It writes the seconds of its iterations to --times. With --padded
each stage of a model takes the same time in every iteration: its computing is followed by waiting,
so that what else the machine does shows only in communication.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WIDE, HEADS, LAYERS, CONTEXT, VOCABULARY = 192, 6, 4, 64, 65  # nanoGPT's train_shakespeare_char


class Padding:
    """When the stages of a model are over: `forward` and `backward` seconds apart."""

    def __init__(self, stages: int, forward: float, backward: float) -> None:
        self.stages, self.forward, self.backward = stages, forward, backward
        self.began = self.turned = 0.0

    def ahead(self, stage: int) -> None:
        """Wait until a stage has taken its time on the way forward."""
        _sleep_until(self.began + (stage + 1) * self.forward)

    def back(self, stage: int) -> None:
        """Wait until the stages behind this one have taken theirs on the way back."""
        if stage == self.stages - 1:
            self.turned = time.monotonic()
        _sleep_until(self.turned + (self.stages - 1 - stage) * self.backward)


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))


class _Padded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pad: Padding, stage: int) -> Tensor:
        ctx.pad, ctx.stage = pad, stage
        pad.ahead(stage)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None]:
        ctx.pad.back(ctx.stage)
        return above[0], None, None


def through(stages: Iterable[nn.Module], x: Tensor, pad: Padding | None) -> Tensor:
    if pad is not None:
        pad.began = time.monotonic()
    for number, stage in enumerate(stages):
        x = stage(x)
        if pad is not None:
            x = _Padded.apply(x, pad, number)
    return x


class Staged(nn.Module):
    """Stages one after the other, and the loss of the last one's scores."""

    def __init__(self, *stages: nn.Module) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor, targets: Tensor, pad: Padding | None = None) -> Tensor:
        return functional.cross_entropy(through(self.stages, x, pad), targets)


def cnn() -> Staged:
    layers, wide = [], 3
    for channels in (32, 64, 128, 256):
        layers.append(
            nn.Sequential(
                *(nn.Conv2d(wide, channels, 3, padding=1), nn.BatchNorm2d(channels)),
                *(nn.ReLU(), nn.MaxPool2d(2)),
            )
        )
        wide = channels
    head = nn.Sequential(nn.Flatten(), nn.Linear(4 * wide, 512), nn.ReLU(), nn.Linear(512, 10))
    return Staged(*layers, head)


def embedding() -> Staged:
    """Return a table that is looked up and a deep part, after the shape of models of clicks."""
    table = nn.Sequential(nn.Embedding(20_000, 32), nn.Flatten())
    deep = [nn.Sequential(nn.Linear(wide, 512), nn.ReLU()) for wide in (32 * 26, 512, 512)]
    return Staged(table, *deep, nn.Linear(512, 2))


PADDED = {"encoder": (4, 10e-3, 20e-3), "cnn": (5, 8e-3, 16e-3), "embedding": (5, 5e-3, 10e-3)}
"""Stages, and the seconds of each forward and backward: above what each computes."""

UPDATE = 20e-3  # seconds of the update of a padded job


class Block(nn.Module):
    """A layer of a transformer, its norms first."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.before, self.between = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.attention, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.mlp = nn.Sequential(nn.Linear(WIDE, 4 * WIDE), nn.GELU(), nn.Linear(4 * WIDE, WIDE))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.attention(self.before(x)).view(batch, length, 3, HEADS, WIDE // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, WIDE))
        return x + self.mlp(self.between(x))


class Transformer(nn.Module):
    """Tokens to scores: of the next token, or of two classes."""

    def __init__(self, classes: int = 0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDE)
        self.places = nn.Embedding(CONTEXT, WIDE)
        self.blocks = nn.ModuleList(Block(causal=not classes) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDE)
        self.head = nn.Linear(WIDE, classes or VOCABULARY)
        self.classes = classes

    def forward(self, tokens: Tensor, targets: Tensor, pad: Padding | None = None) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        x = through(self.blocks, x, pad)
        x = self.norm(x)
        scores = self.head(x[:, 0] if self.classes else x)
        return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1337 + dist.get_rank())
    is_encoder = options.job == "encoder"
    module: nn.Module = Transformer(2 if is_encoder else 0)
    if options.job in ("cnn", "embedding"):
        module = cnn() if options.job == "cnn" else embedding()
    pad = Padding(*PADDED[options.job]) if options.padded else None
    if options.job == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in module.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=mesh)
        model: nn.Module = fully_shard(module, mesh=mesh)
    else:
        model = DistributedDataParallel(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    micro = 2 if options.job == "gpt" else 1
    ends = []
    for number in range(options.warm + options.iterations + 1):
        for step in range(micro):
            last = step == micro - 1
            with contextlib.nullcontext() if last else model.no_sync():  # type: ignore[operator]
                (model(*batch(options.job), pad) / micro).backward()
        update = time.monotonic()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if pad is not None:
            _sleep_until(update + UPDATE)
        ends.append(time.monotonic())
        if number == options.warm // 2:
            print(json.dumps("training"), flush=True)
    if options.times is not None and dist.get_rank() == 0:
        seconds = [late - early for early, late in pairwise(ends[options.warm :])]
        options.times.write_text(json.dumps({"seconds": seconds}))
    dist.destroy_process_group()


def batch(job: str) -> tuple[Tensor, Tensor]:
    if job == "cnn":
        return torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    if job == "embedding":
        return torch.randint(20_000, (64, 26)), torch.randint(2, (64,))
    tokens = torch.randint(VOCABULARY, (6, CONTEXT))
    return tokens, torch.randint(2, (6,)) if job == "encoder" else tokens.roll(-1, 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=("gpt", "fsdp2", *PADDED), default="gpt")
    parser.add_argument("--padded", action="store_true", help="as above; not gpt, not fsdp2")
    parser.add_argument("--warm", type=int, default=6, help="iterations that do not count")
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--times", type=Path, help="file for the seconds of iterations")
    return parser.parse_args()


if __name__ == "__main__":
    main()
