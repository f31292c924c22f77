"""Llama 3 8B by its published sizes, sharded by FSDP2, one sequence of 8,192 tokens a rank."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

LAYERS, WIDTH, INNER, VOCABULARY, LENGTH = 32, 4096, 14336, 128256, 8192
HEADS, KEYS, HEAD = 32, 8, 128


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.output = linear(WIDTH, HEADS * HEAD), linear(HEADS * HEAD, WIDTH)
        self.key, self.value = linear(WIDTH, KEYS * HEAD), linear(WIDTH, KEYS * HEAD)
        self.gate, self.up, self.down = (
            linear(WIDTH, INNER),
            linear(WIDTH, INNER),
            linear(INNER, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = self.before(x)
        query, key, value = (
            project(states).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        key, value = (each.repeat_interleave(HEADS // KEYS, 1) for each in (key, value))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        states = self.between(x)
        return x + self.down(nn.functional.silu(self.gate(states)) * self.up(states))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
with torch.device("meta"):
    model = Llama()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.blocks:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.to_empty(device=device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(10):
    tokens = torch.randint(VOCABULARY, (1, LENGTH), device=device)
    scores = model(tokens).flatten(0, 1).float()
    nn.functional.cross_entropy(scores, tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
