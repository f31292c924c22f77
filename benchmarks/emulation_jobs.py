"""Training scripts that compute, written after the shape of published ones; as anybody runs them.

    torchrun --nproc-per-node=2 emulation_jobs.py --job gpt

Nothing in it knows of emulation. It writes the seconds of its iterations to --times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WIDE, HEADS, LAYERS, CONTEXT, VOCABULARY = 192, 6, 4, 64, 65  # nanoGPT's train_shakespeare_char


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

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        scores = self.head(x[:, 0] if self.classes else x)
        return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1337 + dist.get_rank())
    is_encoder = options.job == "encoder"
    module = Transformer(2 if is_encoder else 0)
    if options.job == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in module.blocks:
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
                tokens = torch.randint(VOCABULARY, (6, CONTEXT))
                targets = torch.randint(2, (6,)) if is_encoder else tokens.roll(-1, 1)
                (model(tokens, targets) / micro).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(time.monotonic())
        if number == options.warm // 2:
            print(json.dumps("training"), flush=True)
    if options.times is not None and dist.get_rank() == 0:
        seconds = [late - early for early, late in pairwise(ends[options.warm :])]
        options.times.write_text(json.dumps({"seconds": seconds}))
    dist.destroy_process_group()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=("gpt", "fsdp2", "encoder"), default="gpt")
    parser.add_argument("--warm", type=int, default=6, help="iterations that do not count")
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--times", type=Path, help="file for the seconds of iterations")
    return parser.parse_args()


if __name__ == "__main__":
    main()
