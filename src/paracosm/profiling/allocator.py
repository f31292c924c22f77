"""Holding glibc's malloc to one way of allocating memory.

By default malloc returns large blocks to the system when they are freed, and every new one costs
page faults: up to a fifth of a training iteration, attributed to whichever op happens to pay.
*Kept*, blocks stay with the process; this can be set while it runs. One cause remains: PyTorch asks
for aligned blocks, malloc cuts them out of larger ones, and its per-thread cache keeps the
remainders, so that freed blocks cannot merge and the next one of their size is new memory after
all. That cache can only be switched off before the process starts: *pinned* is both.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

PINNED, KEPT, DEFAULT = "malloc pinned", "malloc kept", "malloc default"

_VARIABLE, _TUNABLE = "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"

# From malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_PAD = 64 << 20


def keep_memory() -> str:
    """Make malloc keep freed memory in this process; return the allocator's name, which differs
    where the C library has no `mallopt` and nothing changes."""
    if not _is_glibc():
        return DEFAULT
    mallopt = ctypes.CDLL(None).mallopt
    wanted = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _PAD))
    if not all(mallopt(ctypes.c_int(option), ctypes.c_int(value)) for option, value in wanted):
        return DEFAULT
    return PINNED if _started_pinned() else KEPT


def own_allocator() -> str:
    """Return the allocator with which this process would time ops, without changing it."""
    return (PINNED if _started_pinned() else KEPT) if _is_glibc() else DEFAULT


def command_allocator() -> str:
    """Return the allocator with which the commands time ops on this machine."""
    return PINNED if _is_glibc() else DEFAULT


def pinned_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables with which a process starts pinned."""
    tunables = [part for part in (environ.get(_VARIABLE), _TUNABLE) if part]
    return {**environ, _VARIABLE: ":".join(tunables)}


def restart_pinned() -> None:
    """Restart this program with the same arguments and pinned, unless it already is.

    For programs on Linux with glibc, to be called first: all state is lost.
    """
    if _is_glibc() and not _started_pinned():
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, sys.orig_argv, pinned_environ(os.environ))


def _is_glibc() -> bool:
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    return hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt")


def _started_pinned() -> bool:
    try:
        started = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    prefix = f"{_VARIABLE}=".encode()
    return any(_TUNABLE.encode() in entry for entry in started if entry.startswith(prefix))
