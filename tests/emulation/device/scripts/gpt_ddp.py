"""A small GPT under DistributedDataParallel in bfloat16, of as many micro-batches as is said."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LAYERS, WIDTH, LENGTH, BATCH = 8192, 2, 512, 512, 8
MICROBATCHES, IN_BUCKETS = int(sys.argv[1]), len(sys.argv) > 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        heads = self.attention(self.before(states)).unflatten(-1, (3, -1, 64)).transpose(1, 3)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(2), is_causal=True)
        states = states + self.projection(mixed.transpose(1, 2).flatten(2))
        return states + self.down(nn.functional.gelu(self.up(self.between(states))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.tokens(tokens)
        for block in self.blocks:
            states = block(states)
        return self.head(states)


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = DistributedDataParallel(GPT().to(device), gradient_as_bucket_view=IN_BUCKETS)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(10):
    for micro in range(MICROBATCHES):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), device=device)
        model.require_backward_grad_sync = micro == MICROBATCHES - 1
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(tokens).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores, tokens.flatten())
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=not IN_BUCKETS)
dist.destroy_process_group()
