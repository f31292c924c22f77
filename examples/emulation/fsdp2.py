"""An ordinary FSDP2 script: a small transformer on random tokens, every block sharded.

torchrun --nproc-per-node=2 fsdp2.py                            # as it is meant
paracosm emulate --world-size 1024 --bandwidth 100Gbit/s fsdp2.py    # as rank 0 of 1,024
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

TOKENS = 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()

    dist.init_process_group()
    torch.manual_seed(0)
    model = Transformer()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    torch.manual_seed(dist.get_rank())
    for step in range(options.steps):
        tokens = torch.randint(TOKENS, (options.batch, options.length + 1))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    dist.destroy_process_group()


class Transformer(nn.Module):
    """Four blocks of width 256, 3.7 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 256)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
            for _ in range(4)
        )
        self.head = nn.Linear(256, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for block in self.blocks:
            states = block(states, src_mask=mask, is_causal=True)
        return self.head(states.flatten(0, 1))


if __name__ == "__main__":
    main()
