"""A mixture of experts: tokens travel to the ranks of their experts, and back."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single

TOKENS, WIDTH, INNER, EXPERTS, CHOSEN = 96, 16, 32, 8, 2

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
RANKS = dist.get_world_size()
HELD = EXPERTS // RANKS


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.held = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH))
            for _ in range(HELD)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, experts = self.router(x).softmax(-1).topk(CHOSEN)
        order = experts.flatten().argsort(stable=True)
        counts = torch.bincount(experts.flatten(), minlength=EXPERTS)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        sent = counts.view(RANKS, HELD).sum(1).tolist()
        come = arriving.view(RANKS, HELD).sum(1).tolist()
        assert sum(sent) == TOKENS * CHOSEN
        tokens = all_to_all_single(x.new_empty(sum(come), WIDTH), x[order // CHOSEN], come, sent)
        parts = tokens.split(arriving.tolist())
        of_experts = [torch.cat(parts[number::HELD]) for number in range(HELD)]
        print("tokens", counts.tolist(), [len(part) for part in of_experts], flush=True)
        done = [expert(part) for expert, part in zip(self.held, of_experts, strict=True)]
        pieces = [piece.split(arriving[i::HELD].tolist()) for i, piece in enumerate(done)]
        tokens = torch.cat([piece[rank] for rank in range(RANKS) for piece in pieces])
        back = all_to_all_single(x.new_empty(sum(sent), WIDTH), tokens, sent, come)
        weighted = back * scores.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, order // CHOSEN, weighted)


torch.manual_seed(0)
model = Experts().to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(10):
    x = torch.randn(TOKENS, WIDTH, device=device)
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
