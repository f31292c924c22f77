"""Messages between servers and workers, over gloo."""

import datetime
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from paracosm.profiling.jobs.pytorch.options import Setup
from paracosm.profiling.processes import loopback

REQUEST, ACKNOWLEDGE = 1, 2
"""Tags of what a worker wants from a server, and of the server's word that it is done."""

PULL, PUSH = 1_000_000, 2_000_000
"""Tags of parameter and gradient 0; those of i are i more."""

STEP, GOODPUT, LEAVE = range(3)
"""What a request, four integers, asks for: the step's parameters; an `exchange` of so many messages
down, so many up, of so many bytes each; not to be waited for any longer."""

_FILLER = 3_000_000


def join(setup: Setup) -> None:
    """Meet the other processes; gloo's time-outs are disabled, since the parent process has one."""
    os.environ["GLOO_SOCKET_IFNAME"] = setup.interface or loopback()
    ranks = setup.options.servers + setup.workers
    dist.init_process_group(
        "gloo",
        store=FileStore(setup.store, ranks),
        rank=setup.rank,
        world_size=ranks,
        timeout=datetime.timedelta(days=1),
    )


def exchange(peer: int, sent: int, received: int, size: int) -> float:
    """Send and receive messages at once, and return the bytes/s of those received, if any.

    Gloo carries the messages of one direction between two processes one after the other; the two
    directions are independent. The clock begins before the first byte is under way: a process that
    wakes up late would find messages that had arrived earlier, and overestimate the link.
    """
    source, target = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
    begin = time.monotonic()
    arriving = [posted(dist.irecv(target, peer, tag=_FILLER + i)) for i in range(received)]
    leaving = [posted(dist.isend(source, peer, tag=_FILLER + i)) for i in range(sent)]
    for work in arriving:
        work.wait()
    seconds = time.monotonic() - begin
    for work in leaving:
        work.wait()
    return received * size / seconds if received else 0.0


def posted(work: Any) -> Any:
    """Return a posted message, which is None for processes of other groups."""
    assert work is not None, "this process belongs to the group"
    return work
