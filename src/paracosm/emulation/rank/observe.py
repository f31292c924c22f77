"""Observe a training script from within its process: when iterations end, and when it waits.

The script is unchanged, and so is everything it can see: these are hooks where PyTorch has them,
and wrappers of PyTorch's own functions elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import resource
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from paracosm.emulation.records import Iteration, RecordWriter, Wait


def observe(
    recorder: RecordWriter, rank: int, waits: Waits, on_iteration: Callable[[float], None]
) -> None:
    """Record iterations, and the waits at the end of DistributedDataParallel's backward passes.

    An iteration ends with the step of the optimizer that stepped first. Other waits are recorded by
    the works themselves in backend mode, or with `watch_works`.
    """
    numbers = itertools.count()
    counted: weakref.ref[Optimizer] | None = None

    def stepped(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal counted
        first = None if counted is None else counted()
        if first is None:
            counted = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        end, cpu = waits.now(), time.process_time()
        memory, core_wait = peak_memory(), waits.left_out()
        recorder.append(Iteration(rank, next(numbers), end, cpu, memory, core_wait))
        on_iteration(end)

    register_optimizer_step_post_hook(stepped)
    watch_backward(waits)


def watch_works(waits: Waits) -> None:
    """Make PyTorch's own process groups record waits: for works, tensors, and blocking broadcasts.

    Calls from C++ are not seen, except for DistributedDataParallel's: see `observe`.
    """
    import torch.distributed._functional_collectives as functional

    def waiting_unless_traced(tensor: torch.Tensor) -> Any:
        return wait_tensor(tensor) if torch.compiler.is_compiling() else watched(tensor)

    wait_tensor: Callable[[torch.Tensor], Any] = functional.wait_tensor
    watched = waits.watched(wait_tensor)
    functional.wait_tensor = waiting_unless_traced
    for owner, name in ((dist.Work, "wait"), (dist, "_broadcast_coalesced")):
        setattr(owner, name, waits.watched(getattr(owner, name)))


def watch_backward(waits: Waits) -> None:
    """Make each backward pass of a DistributedDataParallel record its wait for all-reduces.

    DDP waits in a callback that it queues with the autograd engine when its last bucket is full.
    The engine runs callbacks in order. One queued earlier, when the gradient of the module's output
    arrives, begins the wait; it queues another one, after all others, which ends the wait.
    """
    forward: Callable[..., Any] = DistributedDataParallel.forward

    @wraps(forward)
    def watching(module: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
        output = forward(module, *inputs, **kwargs)
        # Under no_sync a backward pass waits for nothing; traced code takes no hooks.
        reduces = torch.is_grad_enabled() and module.require_backward_grad_sync
        if reduces and not torch.compiler.is_compiling():
            watch = _watcher(waits)
            for tensor in _tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(watch)  # type: ignore[no-untyped-call]
        return output

    setattr(DistributedDataParallel, "forward", watching)  # noqa: B010  # not a method to mypy


def _watcher(waits: Waits) -> Callable[[torch.Tensor], None]:
    seen: int | None = None  # the backward pass that was seen last

    def begin() -> None:
        _queue(waits.open())

    def gradient_arrived(gradient: torch.Tensor) -> None:
        nonlocal seen
        task = torch._C._current_graph_task_id()
        if task != seen:
            seen = task
            _queue(begin)

    return gradient_arrived


def _queue(callback: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from _tensors(part)
    elif isinstance(output, Mapping):
        for part in output.values():
            yield from _tensors(part)
    elif dataclasses.is_dataclass(output):
        for field in dataclasses.fields(output):
            yield from _tensors(getattr(output, field.name))


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


class CoreClock:
    """The time for which the main thread, ready to run, waits for a core.

    Linux counts it per thread (Documentation/scheduler/sched-stats.rst, "schedstat"); elsewhere it
    is 0.
    """

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(f"/proc/self/task/{os.getpid()}/schedstat", os.O_RDONLY)

    def waited(self) -> float:
        """Return the seconds for which the thread has waited so far."""
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, 96, 0).split()[1]) * 1e-9


_READINGS = 5  # tries to read two clocks without losing the core in between


class Waits:
    """Records the waits of one rank.

    A wait within a wait of the same thread is part of it. There are four ways to report a wait:
    wrap the call (`watched`), call `begin` and `end`, or `open` if another thread may end it, or
    call `add` afterwards.
    """

    def __init__(
        self,
        recorder: RecordWriter,
        rank: int,
        ended: Callable[[float], None] | None = None,
        measures: bool = False,  # whether instants leave out what the rank waited for a core
    ) -> None:
        self._clock = CoreClock() if measures else None
        self._recorder = recorder
        self._rank = rank
        self._ended = ended
        self._open = _Open()
        self._latest = 0.0

    def now(self) -> float:
        """Return the instant, which is never before one that was returned earlier."""
        if self._clock is None:
            return time.monotonic()
        # Whoever loses the core between the two readings would take what it waited for off twice,
        # or not at all.
        for _ in range(_READINGS):
            left_out, instant = self._clock.waited(), time.monotonic()
            if self._clock.waited() == left_out:
                break
        # What the main thread still waits for while another one asks is counted afterwards.
        self._latest = max(self._latest, instant - left_out)
        return self._latest

    def left_out(self) -> float:
        return 0.0 if self._clock is None else self._clock.waited()

    def open(self) -> Callable[[], None]:
        """Begin a wait, and return the function that ends it."""
        return self._begun() if self._open.depth == 0 else lambda: None

    def begin(self) -> None:
        if self._open.depth == 0:
            self._open.end = self._begun()
        self._open.depth += 1

    def end(self) -> None:
        self._open.depth -= 1
        if self._open.depth == 0:
            self._open.end()

    def add(self, begin: float, end: float, group: str = "", number: int = -1) -> None:
        if self._open.depth == 0:
            self._record(begin, end, group, number)

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def waiting(*args: Any, **kwargs: Any) -> Any:
            self.begin()
            try:
                return call(*args, **kwargs)
            finally:
                self.end()

        return waiting

    def _begun(self) -> Callable[[], None]:
        since = self.now()
        return lambda: self._record(since, self.now())

    def _record(self, begin: float, end: float, group: str = "", number: int = -1) -> None:
        self._recorder.append(Wait(self._rank, begin, end, group, number))
        if self._ended is not None:
            self._ended(end)


class _Open(threading.local):
    depth = 0
    end: Callable[[], None]
