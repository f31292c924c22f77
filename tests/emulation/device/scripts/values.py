"""What comes back of values: those that were sent, what follows from them, and what is assumed."""

import os

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce, all_to_all_single

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
RANKS = dist.get_world_size()
world = dist.group.WORLD

# Collectives of what is known: every rank holds what this one holds.
counts = torch.arange(8, device=device) + 1
assert all_to_all_single(counts.view(4, 2), None, None, group=world).tolist() == [[1, 2]] * 4
assert all_reduce(counts, "sum", world).tolist() == [4 * n for n in range(1, 9)]
assert all_reduce(counts, "avg", world).tolist() == list(range(1, 9))
summed = counts.clone()
dist.all_reduce(summed)
assert summed.tolist() == [4 * n for n in range(1, 9)]
dist.all_reduce(summed, op=dist.ReduceOp.MAX)
assert summed.sum().item() == 144
gathered = [torch.empty_like(counts) for _ in range(RANKS)]
dist.all_gather(gathered, counts)
assert torch.stack(gathered).sum(0).tolist() == summed.tolist()
whole = torch.empty(RANKS, 8, dtype=counts.dtype, device=device)
dist.all_gather_single(whole.view(-1), counts)
assert whole[3, 2:4].tolist() == [3, 4]
part = torch.empty(2, dtype=counts.dtype, device=device)
dist.reduce_scatter_single(part, counts)
assert part.tolist() == [4, 8]
flag = torch.tensor([0, 1], device=device)
dist.broadcast(flag, 0)
assert flag.any().item()
assert not flag.all().item()

# What is written to a view is seen by the whole, and what is unknown stays so.
whole[0] = 7
assert whole.sum().item() == 8 * 7 + 3 * 36
whole[1].copy_(torch.randn(8, device=device))
assert whole[0].tolist() == [7] * 8
assert whole.tolist() == [[1] * 8] * 4  # assumed

# No number overflows, and a mask is true.
x = torch.randn(5, 3, device=device)
assert torch.isfinite(x).all()
assert not torch.isnan(x).any()
assert not torch.isinf(x).any()
tokens = torch.randint(0, 9, (4, 16), device=device)
assert (tokens != 3).sum().item() == x[x > 0].numel() * 64 // 15 == 64
padded = torch.tensor([[5, 3, 0], [4, 0, 0]], device=device)
assert (padded != 0).sum().item() == 3
assert x.new_zeros(2, 3)[padded != 0].shape == (3,)
assert torch.repeat_interleave(padded.flatten()).numel() == 12
assert torch.unique(padded).tolist() == [0, 3, 4, 5]

# Choices of a router add up, however they are counted.
experts = torch.randn(30, 8, device=device).softmax(-1).topk(3).indices
loads = torch.bincount(experts.flatten(), minlength=8)
assert sorted(loads.tolist()) == [11] * 6 + [12] * 2
assert torch.histc(experts.int(), bins=8, min=0, max=7).tolist() == loads.tolist()
mask = torch.nn.functional.one_hot(experts, 8)
assert mask.sum((0, 1)).tolist() == loads.tolist()
assert mask.max().item() == 1
tokens_of = [torch.where(mask[:, :, number])[0].numel() for number in range(8)]
assert tokens_of == loads.tolist()
ends = loads.cumsum(0)
order = experts.flatten().argsort(stable=True)
assert experts.flatten()[order][ends[2] : ends[3]].tolist() == [3] * tokens_of[3]
assert len(torch.unique(experts[0])) == 3  # each expert once
best = torch.randn(16, 4, device=device).argmax(-1)
assert torch.bincount(best).tolist() == [4] * 4
labels = torch.arange(16) % 4
assert 0 <= (best == labels.to(device)).float().mean().item() <= 1

model = torch.nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    model(x).mean().backward()
    optimizer.step()
