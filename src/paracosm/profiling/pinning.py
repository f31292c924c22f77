"""Holding a process still while it is measured: one core, so many threads, one allocator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from paracosm.errors import InputError, require
from paracosm.profiling.allocator import keep_memory

__all__ = ["flushes_denormals", "own_random_numbers", "pinned"]

_SHARED = 1 << 20  # numbers of a tensor of which every thread gets a part


@contextlib.contextmanager
def pinned(device: str, threads: int = 1) -> Iterator[None]:
    """Let PyTorch use `threads` threads, on one core where it is one; flush denormal numbers.

    Threads, cores and denormal numbers are as before at the end of the block. The allocator goes on
    keeping memory: what malloc has been told, it cannot be asked.

    Raises:
        InputError: there are fewer cores than threads; or several are wanted, and have been started
            without flushing: each has a setting of its own, and inherits it when it is started.
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
    before, flushed = torch.get_num_threads(), flushes_denormals(torch)
    keep_memory()
    try:
        torch.set_num_threads(threads)
        can_flush = torch.set_flush_denormal(True)
        if can_flush and threads > 1 and not flushes_denormals(torch, _SHARED):
            raise InputError(
                "threads: those of PyTorch were started before, and are slow on denormal numbers: "
                "profile several threads first thing in a process"
            )
        if threads == 1:
            _stay_on({max(cores)})
        yield
    finally:
        if threads == 1:
            _stay_on(cores)
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(before)


@contextlib.contextmanager
def own_random_numbers(device: str, seed: int) -> Iterator[None]:
    """Seed PyTorch's random numbers; the caller's go on afterwards as if nothing had been."""
    torch = require("torch", "torch", "profiling ops")
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def flushes_denormals(torch: Any, numbers: int = 1) -> bool:
    """Whether denormal numbers become 0 in this thread, or in all that share so many numbers.

    PyTorch can be told to, but not asked whether.
    """
    denormal = torch.full((numbers,), 1, dtype=torch.int32).view(torch.float32)
    return not (denormal * 1.0).view(torch.int32).any()


def _stay_on(cores: set[int]) -> None:
    """Let this thread run on `cores` only, where the system can say so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
