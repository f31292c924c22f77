"""Call every collective of torch.distributed a few times and print what came of each.

All ranks hold the same data, so that every result is known: it is that of any rank.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist


class Collectives:
    """One method for each collective; each returns a tensor that shows its outcome."""

    def __init__(self, elements: int) -> None:
        world, rank = dist.get_world_size(), dist.get_rank()
        self.world, self.rank = world, rank
        self.data = torch.arange(elements, dtype=torch.float32) % 7 + 1
        self.chunks = [self.data + i for i in range(world)]

    def all_reduce(self) -> torch.Tensor:
        data = self.data.clone()
        dist.all_reduce(data)
        return data

    def all_reduce_max(self) -> torch.Tensor:
        data = self.data.clone()
        dist.all_reduce(data, op=dist.ReduceOp.MAX)
        return data

    def all_reduce_integers(self) -> torch.Tensor:
        data = torch.arange(5) + 1
        dist.all_reduce(data)
        return data

    def all_reduce_async(self) -> torch.Tensor:
        first, second = self.data.clone(), self.data.clone() * 2
        works = [dist.all_reduce(data, async_op=True) for data in (first, second)]
        for work in works:
            work.wait()
        return first + second

    def all_gather(self) -> torch.Tensor:
        parts = [torch.zeros_like(self.data) for _ in range(self.world)]
        dist.all_gather(parts, self.data)
        return torch.cat(parts)

    def all_gather_single(self) -> torch.Tensor:
        whole = torch.zeros(self.world * self.data.numel())
        dist.all_gather_into_tensor(whole, self.data)
        return whole

    def all_gather_object(self) -> torch.Tensor:
        found: list[dict[str, int] | None] = [None] * self.world
        dist.all_gather_object(found, {"answer": 42})
        return torch.tensor([one["answer"] for one in found if one is not None])

    def reduce_scatter(self) -> torch.Tensor:
        mine = torch.zeros(self.data.numel())
        dist.reduce_scatter_tensor(mine, torch.cat([self.data] * self.world))
        return mine

    def reduce_scatter_list(self) -> torch.Tensor:
        mine = torch.zeros(self.data.numel())
        dist.reduce_scatter(mine, [self.data.clone() for _ in range(self.world)])
        return mine

    def reduce(self) -> torch.Tensor:
        data = self.data.clone()
        dist.reduce(data, dst=0)
        return data if self.rank == 0 else self.data * self.world

    def broadcast(self) -> torch.Tensor:
        data = self.data.clone()
        dist.broadcast(data, src=0)
        return data

    def broadcast_objects(self) -> torch.Tensor:
        found = [{"answer": 42}]
        dist.broadcast_object_list(found, src=0)
        return torch.tensor([found[0]["answer"]])

    def gather(self) -> torch.Tensor:
        here = self.rank == 0
        parts = [torch.zeros_like(self.data) for _ in range(self.world)] if here else None
        dist.gather(self.data, parts, dst=0)
        return torch.cat(parts) if parts is not None else torch.cat([self.data] * self.world)

    def scatter(self) -> torch.Tensor:
        mine = torch.zeros_like(self.data)
        here = self.rank == 0
        dist.scatter(mine, [self.data.clone() for _ in range(self.world)] if here else None, src=0)
        return mine

    def all_to_all(self) -> torch.Tensor:
        mine = torch.zeros(self.world * self.data.numel())
        dist.all_to_all_single(mine, torch.cat([self.data] * self.world))
        return mine

    def barrier(self) -> torch.Tensor:
        dist.barrier()
        return torch.zeros(1)

    def ring(self) -> torch.Tensor:
        """Send to the next rank, receive from the one before."""
        if self.world == 1:
            return self.data
        mine = torch.zeros_like(self.data)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self.data, (self.rank + 1) % self.world),
                dist.P2POp(dist.irecv, mine, (self.rank - 1) % self.world),
            ]
        )
        for work in works:
            work.wait()
        return mine

    def sub_group(self) -> torch.Tensor:
        """Reduce among the first half of the ranks; the others make the group and go on."""
        half = max(1, self.world // 2)
        group = dist.new_group(list(range(half)))
        data = self.data.clone()
        if self.rank < half:
            dist.all_reduce(data, group=group)
        else:
            data *= half
        return data


ALL = [name for name in vars(Collectives) if not name.startswith("_")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--elements", type=int, default=1000, help="of each rank's data")
    parser.add_argument("--only", nargs="*", choices=ALL, default=ALL)
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    collectives = Collectives(options.elements)
    for _ in range(options.steps):
        for name in options.only:
            call: Callable[[], torch.Tensor] = getattr(collectives, name)
            found = call().double()
            if collectives.rank == 0:
                weights = torch.arange(1, found.numel() + 1, dtype=torch.float64)
                print(name, tuple(found.shape), f"{(found * weights).sum().item():.0f}")
    print("final loss 0.000000", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
