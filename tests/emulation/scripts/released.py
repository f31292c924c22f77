"""End while a thread of gloo's frees a tensor, which takes a second of the interpreter's time."""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist

freeing = threading.Event()


class Slow:
    def __del__(self) -> None:
        where = "main" if threading.current_thread() is threading.main_thread() else "gloo"
        print(f"freed by {where}", flush=True)
        freeing.set()
        time.sleep(1)


dist.init_process_group("gloo")
tensor = torch.ones(2)
tensor.slow = Slow()  # type: ignore[attr-defined]
dist.all_reduce(torch.ones(2))
dist.all_reduce(tensor, async_op=True)
group = dist.group.WORLD  # destroying the group doesn't end its threads now
del tensor
freeing.wait()
