"""An ordinary training script of GPUs: a GPT, sharded by FSDP2, in bfloat16.

torchrun --nproc-per-node=8 gpt.py                                     # as it is meant
paracosm emulate --hardware dgx-h100 --world-size 512 gpt.py    # without a GPU, as one of 512
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

VOCABULARY = 50304


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()

    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    with torch.device("meta"):
        model = GPT(options.layers, options.width, options.length)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    tokens_of_a_step = options.batch * options.length
    for step in range(1000):
        begin = time.perf_counter()
        text = torch.randint(VOCABULARY, (options.batch, options.length + 1))
        inputs, targets = text[:, :-1].to(device), text[:, 1:].to(device)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()  # waits for the device
        rate = tokens_of_a_step / (time.perf_counter() - begin)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {value:.3f}, {rate:,.0f} tokens/s a GPU", flush=True)
    dist.destroy_process_group()


class GPT(nn.Module):
    """1.3 billion parameters, by default."""

    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        places = torch.arange(inputs.shape[1], device=inputs.device)
        states = self.tokens(inputs) + self.places(places)
        for block in self.blocks:
            states = block(states)
        return self.head(self.norm(states)).float()


class Block(nn.Module):
    def __init__(self, width: int, head: int = 128) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = head

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        heads = self.attention(self.before(states)).unflatten(-1, (3, -1, self.head))
        query, key, value = heads.transpose(1, 3).unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.projection(mixed.transpose(1, 2).flatten(2))
        return states + self.down(nn.functional.gelu(self.up(self.between(states))))


if __name__ == "__main__":
    main()
