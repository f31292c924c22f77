"""A real rank under PyTorch's own ProcessGroupNCCL, whose NCCL is the shim."""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.backend.install import skip_rendezvous
from paracosm.emulation.config import Setting
from paracosm.emulation.nccl.build import KERNELS, kernels
from paracosm.emulation.nccl.table import (
    ITERATION_ENDED,
    VARIABLE,
    WAIT_ENDED,
    questions_of,
    tell,
)
from paracosm.emulation.rank.announce import before
from paracosm.emulation.rank.objects import replace_object_collectives
from paracosm.emulation.rank.observe import Waits, observe, watch_works
from paracosm.emulation.records import Group, RecordWriter

_UNIQUE_ID = bytes(128)
_RANKS_PER_ROOT = 128  # default of TORCH_NCCL_RANKS_PER_ROOT
_MOST_COMMUNICATORS = 16  # of one group: one for each device that it is used on


def prepare_nccl(
    setting: Setting, recorder: RecordWriter, refuse: Callable[[str], Exception]
) -> Callable[[float], None]:
    """Make this process a real rank; the shim is loaded already.

    Returns the function that writes the ended collectives to their file.
    """
    shim = ctypes.CDLL(None)
    shim.paracosm_wait_begins.restype = ctypes.c_void_p
    shim.paracosm_next_peer.restype = None
    rank = setting.rank
    questions = questions_of(Path(os.environ[VARIABLE]))
    skip_rendezvous()
    replace_object_collectives((rank,), refuse, lambda sizes, source: False)
    _name_groups(rank, recorder)
    for name in ("send", "recv_"):
        before(name, lambda arguments: shim.paracosm_next_peer(arguments[2]))
    waits = StreamWaits(recorder, rank, lambda now: tell(questions, WAIT_ENDED), shim)
    watch_works(waits)
    observe(recorder, rank, waits, lambda now: tell(questions, ITERATION_ENDED))

    def record_ended(now: float) -> None:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        shim.paracosm_flush()

    atexit.register(record_ended, 0.0)
    return record_ended


class StreamWaits(Waits):
    """The CUDA stream's waits for collectives, recorded by the shim; the host continues."""

    def __init__(
        self, recorder: RecordWriter, rank: int, ended: Callable[[float], None], shim: Any
    ) -> None:
        super().__init__(recorder, rank, ended)
        self._told = ended
        self._shim = shim

    def _begun(self) -> Callable[[], None]:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return super()._begun()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        wait = ctypes.c_void_p(self._shim.paracosm_wait_begins(stream))

        def end() -> None:
            self._shim.paracosm_wait_ends(wait, stream)
            self._told(time.monotonic())

        return end


def _name_groups(rank: int, recorder: RecordWriter) -> None:
    """Make each process group tell NCCL its name, and put the other ranks' keys into the store."""
    theirs: Any = getattr(c10d, "ProcessGroupNCCL", None)
    if theirs is None:
        return  # PyTorch says so itself, where a script asks for it

    class Named(theirs):  # type: ignore[misc]
        def __init__(self, store: Any, own: int, size: int, options: Any) -> None:
            members = tuple(options.global_ranks_in_group) or tuple(range(size))
            name = options.group_name or "0"
            recorder.append(Group(rank, name, size, members, "nccl"))
            recorder.flush()  # the emulator reads it when the first communicator is made
            options.config.net_name = name
            for key in missing_keys(own, size):
                store.set(key, _UNIQUE_ID)
            _compile_kernels()
            super().__init__(store, own, size, options)

    Named.__name__ = Named.__qualname__ = theirs.__name__
    setattr(c10d, theirs.__name__, Named)


def missing_keys(rank: int, size: int) -> list[str]:
    """Return the keys under which other ranks would publish ids of communicators of a group.

    Rank 0 sets that of a communicator of all, under its number; the roots of a large one set one
    each, and the lower of two ranks that of their pair (ProcessGroupNCCL.cpp, PyTorch 2.13).
    """
    roots = range(-(-size // _RANKS_PER_ROOT))
    of_all = [str(number) for number in range(_MOST_COMMUNICATORS)] if rank else []
    return (
        of_all + [f"UniqueNCCLID:{root}" for root in roots] + [f"{i}:{rank}" for i in range(rank)]
    )


def _compile_kernels() -> None:
    """Let the shim find its kernel; without NVRTC it reports this when a sum needs the kernel."""
    if KERNELS in os.environ or not torch.cuda.is_available():
        return
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    loaded = [line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/libnvrtc.so" in line]
    if loaded:
        for parts in Path(loaded[0]).parent.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(parts))  # which it would look for under its name alone
        made = kernels(ctypes.CDLL(loaded[0]), torch.cuda.get_device_capability())
        os.environ[KERNELS] = str(made)
