"""Observe a training script from within its process: when iterations end, and when it waits.

Nothing of the script is changed, and nothing that it can see: hooks that PyTorch offers where it
does, wrappers of PyTorch's own functions where it does not.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from paracosm.emulation.rank.backward import watch_backward
from paracosm.emulation.rank.memory import peak_memory
from paracosm.emulation.rank.waits import Waits
from paracosm.emulation.records import Iteration, RecordWriter

__all__ = ["observe", "watch_works"]


def observe(
    recorder: RecordWriter,
    rank: int,
    waits: Waits,
    on_iteration: Callable[[float], None] | None = None,
) -> None:
    """Record iterations, and the waits at the end of DistributedDataParallel's backward passes.

    An iteration ends with the step of the optimizer that stepped first. Other waits are recorded by
    the works themselves in backend mode, or with `watch_works`.

    Args:
        recorder: of this process.
        rank: the real rank.
        waits: of the rank.
        on_iteration: is told the instant at which an iteration ended.
    """
    register_optimizer_step_post_hook(_Iterations(recorder, rank, on_iteration).stepped)
    watch_backward(waits)


def watch_works(waits: Waits) -> None:
    """Have PyTorch's own process groups record waits: of works, tensors, and blocking broadcasts.

    Calls from C++ pass this by but for DistributedDataParallel's: see `observe`.
    """
    import torch.distributed._functional_collectives as functional

    def waiting_unless_traced(tensor: torch.Tensor) -> Any:
        return wait_tensor(tensor) if torch.compiler.is_compiling() else watched(tensor)

    wait_tensor: Callable[[torch.Tensor], Any] = functional.wait_tensor
    watched = waits.watched(wait_tensor)
    functional.wait_tensor = waiting_unless_traced
    for owner, name in ((dist.Work, "wait"), (dist, "_broadcast_coalesced")):
        setattr(owner, name, waits.watched(getattr(owner, name)))


class _Iterations:
    """Counts the steps of the optimizer that stepped first, as long as there is such a one."""

    def __init__(
        self, recorder: RecordWriter, rank: int, on_iteration: Callable[[float], None] | None
    ) -> None:
        self._recorder = recorder
        self._rank = rank
        self._on_iteration = on_iteration
        self._number = 0
        self._optimizer: weakref.ref[Optimizer] | None = None

    def stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        first = None if self._optimizer is None else self._optimizer()
        if first is None:
            self._optimizer = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        end, cpu = time.monotonic(), time.process_time()
        self._recorder.append(Iteration(self._rank, self._number, end, cpu, peak_memory()))
        self._number += 1
        if self._on_iteration is not None:
            self._on_iteration(end)
