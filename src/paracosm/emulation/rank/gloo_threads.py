"""Wait for gloo's threads before a group or the interpreter ends, as one may still free a tensor.

A thread of a `ProcessGroupGloo` tells the main thread that a collective is done, and only then
frees its tensors, for which it needs the interpreter's lock. If the interpreter is ending by then,
CPython before 3.14 unwinds the thread through a destructor, and C++ calls `std::terminate`
(https://github.com/pytorch/pytorch/issues/190489, open in PyTorch 2.13). Destroying the groups
joins these threads only where nothing refers to the groups any longer, as models do. A model that
goes later joins them while it holds the interpreter's lock, for which such a thread waits for ever.
"""

from __future__ import annotations

import time
from functools import wraps
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

_NAME = "pt_gloo_runloop"
_PAUSE = 1e-3  # seconds between looks, in which threads can have the interpreter's lock
_PATIENCE = 5.0  # seconds, for a collective that is still under way
_TASKS = Path("/proc/self/task")


def wait_before_groups_end() -> None:
    """Make `destroy_process_group` wait for gloo's threads first."""
    destroy = dist.destroy_process_group

    @wraps(destroy)
    def waiting(*arguments: Any, **options: Any) -> None:
        wait_for_gloo()
        destroy(*arguments, **options)

    for module in (dist, c10d):
        setattr(module, "destroy_process_group", waiting)  # noqa: B010  # its arguments have names


def wait_for_gloo(tasks: Path = _TASKS, patience: float = _PATIENCE) -> bool:
    """Wait until no thread of gloo's has work, and return whether that came within `patience`.

    Elsewhere than on Linux, where threads end without being unwound, there is nothing to wait for.
    """
    until = time.monotonic() + patience
    while any(_works(task) for task in _gloo_threads(tasks)):
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE)
    return True


def _gloo_threads(tasks: Path) -> list[Path]:
    try:
        return [task for task in tasks.iterdir() if _read(task / "comm") == _NAME]
    except OSError:
        return []


def _works(task: Path) -> bool:
    """Return whether a thread does anything but wait for work, without a limit of time.

    "syscall" is "running", or the number of a system call and its arguments (proc_pid_syscall(5)):
    of futex(2) an address, the operation, a value and the limit. Waits for a peer and for the
    interpreter's lock have a limit; that for a mutex is another operation.
    """
    call = _read(task / "syscall").split()
    if not call:  # the thread has ended, or the system does not tell
        return False
    if len(call) < 5:
        return True
    operation, limit = int(call[2], 16), int(call[4], 16)
    return operation & _OPERATION != _WAIT_BITSET or limit != 0


_OPERATION, _WAIT_BITSET = 0x7F, 9  # what is left without futex's flags; wait of a condition


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
