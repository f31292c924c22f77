"""The wait of DistributedDataParallel at the end of a backward pass, which happens in C++."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from paracosm.emulation.rank.waits import Waits

__all__ = ["watch_backward"]


def watch_backward(waits: Waits) -> None:
    """Have each backward pass through a DistributedDataParallel record its wait for all-reduces.

    DDP waits in a callback that it queues with the autograd engine when its last bucket is full.
    The engine runs callbacks in order. One that is queued before, when the gradient of the module's
    output arrives, begins the wait; one that this one queues, which is after all others, ends it.
    """
    forward: Callable[..., Any] = DistributedDataParallel.forward

    @wraps(forward)
    def watching(module: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
        output = forward(module, *inputs, **kwargs)
        # Under no_sync a backward pass waits for nothing; traced code takes no hooks.
        reduces = torch.is_grad_enabled() and module.require_backward_grad_sync
        if reduces and not torch.compiler.is_compiling():
            watch = _Pass(waits).gradient_arrived
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(watch)  # type: ignore[no-untyped-call]
        return output

    _set_forward(watching)


def _set_forward(forward: Callable[..., Any]) -> None:
    DistributedDataParallel.forward = forward  # type: ignore[method-assign]


class _Pass:
    """The backward passes through the outputs of one forward pass."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._task: int | None = None  # the backward pass that was seen last

    def gradient_arrived(self, gradient: torch.Tensor) -> None:
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            _queue(self._begin)

    def _begin(self) -> None:
        begin = time.monotonic()
        _queue(lambda: self._waits.add(begin, time.monotonic()))


def _queue(callback: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Find the tensors in what a module returns, as deep as DDP itself looks."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for each in output:
            yield from _tensors(each)
    elif isinstance(output, Mapping):
        for each in output.values():
            yield from _tensors(each)
    elif dataclasses.is_dataclass(output):
        for field in dataclasses.fields(output):
            yield from _tensors(getattr(output, field.name))
