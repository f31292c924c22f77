"""A rank that does the collectives that it is asked for, and says how long each took.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python collectives.py

Reads lines of JSON, as {"kind": "all_reduce", "size": 1024, "warm": 10, "count": 100}, and answers
each with the seconds of the counted calls. Nothing in it knows that its peers may be emulated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        call = collective(asked["kind"], asked["size"])
        for _ in range(asked["warm"]):
            call()
        print(json.dumps([timed(call) for _ in range(asked["count"])]), flush=True)
    # A real peer may still be sending; those that leave together leave in good order.
    dist.destroy_process_group()


def collective(kind: str, size: int) -> Callable[[], object]:
    """Return a call that moves `size` bytes: of the vector, or of all that is gathered."""
    world = dist.get_world_size()
    whole = torch.zeros(size // 4)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if kind == "all_gather":
        parts = list(whole[: size // 4 // world * world].chunk(world))
        own = parts[dist.get_rank()].clone()
        return lambda: dist.all_gather(parts, own)
    if kind == "barrier":
        return dist.barrier
    raise SystemExit(f"collectives.py: no {kind} here")


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
