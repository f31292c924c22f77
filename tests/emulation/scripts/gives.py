"""Check what other ranks give where they hold what this one does; argument: the real ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    real = [int(rank) for rank in sys.argv[1].split(",")]
    dist.init_process_group("gloo")
    expect_store_is_local()
    rank, world = dist.get_rank(), dist.get_world_size()
    own = [torch.arange(10.0) + each for each in range(world)]
    for root in range(world):
        found = own[rank].clone()
        dist.broadcast(found, root)
        expect("broadcast", found, own[root if root in real else real[0]])
    parts = [torch.zeros(10) for _ in range(world)] if rank == real[0] else None
    dist.gather(own[rank], parts, real[0])
    for sender, part in enumerate(parts or ()):
        expect("gather", part, own[sender if sender in real else rank])
    if len(real) == 1:
        pairs(rank, world)
        rows(rank, world)
    if "scatter" in sys.argv:
        dist.scatter(torch.zeros(3), None, (rank + 1) % world)
    dist.destroy_process_group()


def expect_store_is_local() -> None:
    """Read where the store's port listens from the kernel's table of sockets."""
    port = f":{int(os.environ['MASTER_PORT']):04X}"
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    table += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()]
    listening = [row[1] for row in table if row[1].endswith(port) and row[3] == "0A"]
    assert listening == ["0100007F" + port], listening


def pairs(rank: int, world: int) -> None:
    """Get what went to another rank, or noise."""
    after, before = (rank + 1) % world, (rank - 1) % world
    found = torch.full((5,), torch.nan)
    dist.recv(found, after)
    assert 0 < found.abs().max() < 0.1, found
    sent = torch.arange(5.0)
    dist.send(sent, after)
    dist.recv(found, before)
    expect("recv", found, sent)
    dist.recv(found)  # from anybody: the rank before
    expect("recv", found, sent)
    numbers = torch.tensor([3, 4])
    dist.send(numbers, after)
    found = torch.zeros(2, dtype=torch.long)
    dist.recv(found, after)
    expect("recv", found, numbers)
    if "unknown" in sys.argv:
        dist.recv(torch.zeros(3, dtype=torch.long), after)


def rows(rank: int, world: int) -> None:
    """Get rows from ranks that none goes to."""
    wanted = [0 if each == rank else 2 for each in range(world)]
    given = [0 if each in (rank, (rank + 1) % world) else 2 for each in range(world)]
    found = torch.zeros(sum(wanted))
    dist.all_to_all_single(found, torch.full((sum(given),), 3.0), wanted, given)
    expect("all_to_all", found, torch.full((sum(wanted),), 3.0))


def expect(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found, expected), f"{what}: {found} is not {expected}"


if __name__ == "__main__":
    main()
