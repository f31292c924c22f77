"""A worker process: takes orders from its standard input, a line of JSON each, and answers so.

An order says scenario, size, calls in a row and how many rows; the answer is the seconds that one
message took in each row. The team that starts workers is in `team.py`.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from paracosm.factory import one_line
from paracosm.profiling.allocator import keep_memory
from paracosm.profiling.answers import answering
from paracosm.profiling.links.scenario import Scenario
from paracosm.profiling.links.transfers import Place, Transfer, transfer

__all__ = ["main"]


def main() -> None:
    """Serve orders until the input ends."""
    setup = json.loads(sys.argv[1])
    place = Place(setup["rank"], setup["ranks"], setup["memory"], tuple(setup["signals"]))
    answer = answering()
    try:
        _begin(setup, place)
        answer(ready=True)
        for order in _orders():
            answer(seconds=_carry_out(order, place))
    except Exception as error:
        answer(error=one_line(error))
    # Not an orderly end: a group whose other ranks are gone would wait for them.
    os._exit(0)


def _begin(setup: Mapping[str, Any], place: Place) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    keep_memory()
    if place.ranks == 1:
        return
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, _loopback())
    dist.init_process_group(
        setup["backend"],
        store=FileStore(setup["store"], place.ranks),
        rank=place.rank,
        world_size=place.ranks,
        timeout=datetime.timedelta(seconds=setup["timeout"]),
    )


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), names[0])


def _orders() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


_prepared: dict[tuple[Scenario, int], Transfer] = {}


def _carry_out(order: Mapping[str, Any], place: Place) -> list[float]:
    scenario, size = Scenario(**order["scenario"]), int(order["size"])
    if (scenario, size) not in _prepared:
        _prepared.clear()
        _prepared[scenario, size] = transfer(scenario, size, place)
    found, times = _prepared[scenario, size], int(order["times"])
    return [_row(found, times, place) for _ in range(order["rows"])]


def _row(found: Transfer, times: int, place: Place) -> float:
    if place.ranks > 1:
        dist.barrier()
    found.clock.wait()
    return found.clock.seconds(found.call, times) / (times * found.messages)


if __name__ == "__main__":
    main()
