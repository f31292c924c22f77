"""The most memory that this process has used so far."""

from __future__ import annotations

import resource
import sys

import torch

__all__ = ["peak_memory"]


def peak_memory() -> int:
    """Return the peak in bytes: of the accelerator's allocator where one is used, else resident."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cuda.max_memory_allocated()
    return _peak_resident()


def _peak_resident() -> int:
    try:
        with open("/proc/self/status", "rb") as file:
            status = file.read()
        at = status.index(b"VmHWM:")
        return int(status[at:].split(maxsplit=2)[1]) * 1024
    except (OSError, ValueError):
        # On Linux this would count what the process that started us had in memory.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
