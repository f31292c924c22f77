"""Traces that no worker can be made of: of several processes or devices, or without training."""

from __future__ import annotations

import re

import numpy as np

from paracosm.errors import InputError
from paracosm.timeline.kineto import KinetoTrace

__all__ = ["ACCUMULATE", "refuse_several_processes", "refuse_without_training"]

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""What autograd calls the op that hands a gradient to its parameter."""

_COMMUNICATION = re.compile(
    r"(nccl|rccl|gloo|mpi|ucc|xccl)(:|DevKernel|Kernel)|c10d::|_c10d_functional::"
    r"|record_param_comms|rpc_(sync|async|remote)|DistributedDataParallel"
)


def refuse_several_processes(trace: KinetoTrace) -> None:
    """Refuse a trace in which gradients or activations travel already.

    Raises:
        InputError: it is of a job of several ranks, has collectives, or kernels on several devices.
    """
    why = "record one process without torch.distributed, on one device"
    if trace.world_size is not None and trace.world_size > 1:
        raise InputError(
            f"{trace.path}: rank {trace.rank} of a job of {trace.world_size} ranks, which "
            f"communicates already: {why}"
        )
    for name in trace.names:
        if _COMMUNICATION.match(name):
            raise InputError(f"{trace.path}: {name[:60]}: the job communicates already: {why}")
    for row in sorted(trace.collectives):
        raise InputError(
            f"{trace.path}: {trace.text(row)[:60]}: the job communicates already: {why}"
        )
    used = np.unique(trace.lane[trace.of("kernel")])
    devices = sorted({trace.lanes[lane].owner for lane in used})
    if len(devices) > 1:
        raise InputError(f"{trace.path}: it computes on devices {', '.join(devices)}: {why}")


def refuse_without_training(trace: KinetoTrace) -> None:
    """Refuse a trace that shows no gradients.

    Raises:
        InputError: autograd handed none to a parameter, or the profiler did not see the host.
    """
    if ACCUMULATE not in trace.names:
        raise InputError(
            f"{trace.path}: no gradients ({ACCUMULATE}): a profile needs steps of training, "
            "recorded with ProfilerActivity.CPU"
        )
