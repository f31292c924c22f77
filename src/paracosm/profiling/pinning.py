"""Holding a process still while it is measured: one core, so many threads, one allocator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from paracosm.errors import InputError, require
from paracosm.profiling.allocator import keep_memory

__all__ = ["pinned"]


@contextlib.contextmanager
def pinned(device: str, threads: int = 1) -> Iterator[None]:
    """Let PyTorch use `threads` threads, on one core where it is one; flush denormal numbers.

    Threads and cores are as before at the end of the block. The allocator goes on keeping memory:
    what malloc has been told, it cannot be asked.

    Raises:
        InputError: there are fewer cores than threads.
    """
    torch = require("torch", "torch", "profiling ops")
    if device != "cpu":
        yield
        return
    cores = (
        os.sched_getaffinity(0)
        if hasattr(os, "sched_getaffinity")
        else set(range(os.cpu_count() or 1))
    )
    if not 1 <= threads <= len(cores):
        raise InputError(f"threads: this process may use {len(cores)} cores, not {threads}")
    before = torch.get_num_threads()
    keep_memory()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if threads == 1:
        _stay_on({max(cores)})
    try:
        yield
    finally:
        if threads == 1:
            _stay_on(cores)
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def _stay_on(cores: set[int]) -> None:
    """Let this thread run on `cores` only, where the system can say so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
