"""What a device's memory holds besides tensors, and whether what is needed fits.

Of PyTorch on GPUs: CUDA's context, and the buffers of NCCL's communicators. Other devices hold
tensors alone.
"""

from typing import Literal

from paracosm.units import format_size

Verdict = Literal["fits", "tight", "does not fit"]

CONTEXT = 512 << 20
"""Bytes of CUDA's context with the kernels of a training. 300 MB and more since CUDA 11.7 loads a
kernel when it is first used, above 1,000 MB before (github.com/pytorch/pytorch/issues/107667)."""

CONTEXT_SOURCE = "PyTorch's issue 107667: 300 MB and more from CUDA 11.7 on, above 1 GB before"

WORKSPACE, SMALL_WORKSPACE = 32 << 20, 8 << 20
"""Bytes of a library of matrix products from Hopper on, and before: PyTorch's cuBLAS
(aten/src/ATen/cuda/CublasHandlePool.cpp), and Transformer Engine's besides
(transformer_engine/pytorch/module/base.py); both come from PyTorch's allocator."""

WORKSPACE_SOURCE = "PyTorch's CublasHandlePool.cpp: 32 MiB from Hopper on, 8 MiB before"

CONNECTION = 14 << 20
"""Bytes that a rank's NCCL holds for a channel to a peer: buffers of 10 MiB and of 2 MiB. An
all-to-all between 8 H100, of 32 channels to each of 7 peers, took 3.28 GB, which are 14 MiB for
each (github.com/NVIDIA/nccl/issues/1685)."""

CHANNELS = 24
"""Channels of a ring between the H100 of a machine, with one peer before and one after, of which it
receives from one; their number, and so the memory, grows no further with more machines
(github.com/NVIDIA/nccl/issues/986)."""

CHANNELS_TO_PEER = 32
"""Channels to each peer of an all-to-all (github.com/NVIDIA/nccl/issues/1685)."""

_MACHINE = 8  # ranks; buffers to those of other machines are shared by all channels

NCCL_SOURCE = (
    "NCCL's issues 1685 and 986: 14 MiB a channel and peer, rings of 24 channels, 32 to each peer "
    "of an all-to-all in a machine"
)

TIGHT = 0.92
"""Share of the device's memory from which on a job may not fit, by what is not modelled: workspaces
of libraries, and which pieces the allocator keeps."""


def communicator_bytes(ranks: int, *, all_to_all: bool = False) -> int:
    """Return the bytes that NCCL holds on each rank of a communicator.

    Args:
        ranks: of the communicator.
        all_to_all: whether every rank sends to every other; else they form a ring.
    """
    if ranks < 2:
        return 0
    channels = CHANNELS_TO_PEER * (min(ranks, _MACHINE) - 1) if all_to_all else CHANNELS
    return channels * CONNECTION


def verdict_of(total: int, capacity: int, retries: int, *, is_full: bool) -> Verdict:
    """Return whether `total` bytes are within those of a device.

    Args:
        total: bytes of tensors, what the allocator keeps, and what is held besides.
        capacity: bytes of the device.
        retries: times that the allocator gives back what is unused to make room.
        is_full: whether there is no room then either.
    """
    if is_full:
        return "does not fit"
    return "tight" if retries or total > TIGHT * capacity else "fits"


def verdict_sentence(verdict: Verdict, total: int, capacity: int, retries: int, where: str) -> str:
    """Return one plain sentence on what a verdict means for a run; empty if it fits.

    `where` names the rank, among several.
    """
    size = f"{format_size(total)} of {format_size(capacity)}{where and ' on '}{where}"
    if verdict == "does not fit":
        return f"Does not fit: needs {size}."
    if verdict == "fits":
        return ""
    if retries:
        return (
            f"Tight: needs {size}, and only as the allocator gives back what is unused "
            f"{retries:,} times an iteration, for which it waits for the device: that time is not "
            "in the prediction."
        )
    return (
        f"Tight: needs {size}; where the allocator finds no room it gives back what is unused and "
        "waits for the device, which is not in the prediction."
    )
