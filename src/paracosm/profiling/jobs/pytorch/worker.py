"""A worker: pulls parameters, computes each layer when they are there, pushes each gradient."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from paracosm.graphs.flops import CALLS, call_flops
from paracosm.models import Workload
from paracosm.profiling.jobs.pytorch.options import trained
from paracosm.profiling.jobs.pytorch.transport import (
    ACKNOWLEDGE,
    GOODPUT,
    PULL,
    PUSH,
    REQUEST,
    STEP,
    exchange,
    posted,
)


@dataclass
class Step:
    """What a step did, in seconds of the machine's monotonic clock."""

    begin: float  # when the parameters were asked for
    pulled: list[float]  # by parameter, when it was there
    computed: list[list[float]]  # by segment, begin and end
    # By gradient, in the order of the segments: when it was handed over, when the server had
    # it, when its update began and ended
    pushed: list[list[float]]
    end: float  # when all servers had reported that they are done
    loss: float  # of the parameters that were pulled


class Worker:
    """Runs steps; parameter i comes from, and its gradient goes to, server i modulo their count."""

    def __init__(
        self, workload: Workload, servers: int, waiting: tuple[float, float] | None
    ) -> None:
        """Find the segments, by a step here; `waiting` is seconds of the forward and the
        backward pass, or None. The servers' ranks are 0 to `servers` - 1."""
        self.segments = find_segments(workload)
        self.factor = 1.0  # of the seconds that the next step waits
        self._waiting = _least_seconds(self.segments, waiting)
        self._servers = servers
        self._pulling = ThreadPoolExecutor(max(1, servers))
        self._hooks = ExitStack()  # for as long as the workload
        self.take(workload)

    def take(self, workload: Workload) -> None:
        """Switch to another workload with the same segments."""
        self._hooks.close()
        self.parameters = trained(workload)
        self._numbers = {name: i for i, (name, _) in enumerate(self.parameters)}
        self._workload = workload
        layers = {segment.begin.what for segment in self.segments if segment.begin.kind == "layer"}
        self._hooks.enter_context(watching(workload, sorted(layers), self._reached))

    def step(self) -> Step:
        """Run one step. Without servers, the gradients stay in the parameters."""
        for _, parameter in self.parameters:
            parameter.grad = None
        count = len(self.parameters)
        self._there = [threading.Event() for _ in range(count)]
        self._pulled = [math.nan] * count
        self._computed = [[0.0, 0.0] for _ in self.segments]
        self._pushed: list[tuple[int, float, Any]] = []
        self._at = 0
        self._least = [self.factor * seconds for seconds in self._waiting]
        begin = time.monotonic()
        pulls = [self._pull(server) for server in range(self._servers)]
        if not pulls:
            self._pulled = [begin] * count
            for each in self._there:
                each.set()
        self._computed[0][0] = begin
        loss = forward_and_backward(self._workload, self._reached)
        if self._at < len(self.segments):
            raise RuntimeError(f"this step ends before {_written(self.segments[self._at].end)}")
        done: dict[int, list[float]] = {}
        for server in range(self._servers):  # wait until it has applied all gradients
            numbers = [i for i, _, _ in self._pushed if i % self._servers == server]
            times = torch.zeros(len(numbers), 3, dtype=torch.float64)
            dist.recv(times, server, tag=ACKNOWLEDGE)
            done.update(zip(numbers, times.tolist(), strict=True))
        end = time.monotonic()
        for pull in pulls:
            pull.result()
        for _, _, work in self._pushed:
            work.wait()
        pushed = [[at, *done[i]] for i, at, _ in self._pushed]
        return Step(begin, self._pulled, self._computed, pushed, end, loss)

    def goodput(self, down: int, up: int, size: int) -> tuple[float, float]:
        """Exchange messages with server 0, and return bytes/s down and up."""
        request = torch.tensor([GOODPUT, down, up, size], dtype=torch.int64)
        dist.send(request, 0, tag=REQUEST)
        received = exchange(0, up, down, size)
        answer = torch.zeros(1, dtype=torch.float64)
        dist.recv(answer, 0, tag=ACKNOWLEDGE)
        return received, float(answer)

    def _pull(self, server: int) -> Future[None]:
        """Ask a server for its parameters, and record in another thread when each arrives."""
        numbers = range(server, len(self.parameters), self._servers)
        works = [
            posted(dist.irecv(self.parameters[i][1].detach(), server, tag=PULL + i))
            for i in numbers
        ]
        dist.send(torch.tensor([STEP, 0, 0, 0], dtype=torch.int64), server, tag=REQUEST)

        def note() -> None:
            try:
                for i, work in zip(numbers, works, strict=True):
                    work.wait()
                    self._pulled[i] = time.monotonic()
                    self._there[i].set()
            finally:
                for i in numbers:  # who waits finds out that it did not come
                    self._there[i].set()

        return self._pulling.submit(note)

    def _reached(self, boundary: Boundary) -> None:
        at = self._at
        if at == len(self.segments) or boundary != self.segments[at].end:
            before = _written(self.segments[at].end) if at < len(self.segments) else "the end"
            raise RuntimeError(f"this step has {_written(boundary)} where the first had {before}")
        left = self._computed[at][0] + self._least[at] - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._computed[at][1] = time.monotonic()
        if boundary.kind == "gradient" and self._servers:
            number = self._numbers[boundary.what]
            gradient = self.parameters[number][1].grad
            assert gradient is not None
            begin = time.monotonic()
            work = dist.isend(gradient.contiguous(), number % self._servers, tag=PUSH + number)
            self._pushed.append((number, begin, work))
        self._at = at = at + 1
        if at < len(self.segments):
            # From here on, or from when the last pull was there: handing over a gradient and waking
            # up are part of what the worker computes.
            self._computed[at][0] = self._computed[at - 1][1]
            for number in map(self._numbers.__getitem__, self.segments[at].needs):
                self._there[number].wait()
                if math.isnan(self._pulled[number]):
                    raise RuntimeError(f"server {number % self._servers} is gone")
                self._computed[at][0] = max(self._computed[at][0], self._pulled[number])


def _least_seconds(segments: Sequence[Segment], waiting: tuple[float, float] | None) -> list[float]:
    """Divide the seconds of each pass by floating-point operations, or equally without any."""
    if waiting is None:
        return [0.0] * len(segments)
    least = []
    for segment in segments:
        its = [other for other in segments if other.forward == segment.forward]
        flops = sum(segment.flops for segment in its)
        share = segment.flops / flops if flops else 1 / len(its)
        least.append(waiting[0 if segment.forward else 1] * share)
    return least


def _written(boundary: Boundary) -> str:
    return f"{boundary.kind} {boundary.what}".strip()


@dataclass(frozen=True)
class Boundary:
    """A moment of a step."""

    # "begin" of the step; "layer": a module's forward begins; "backward" begins; "gradient":
    # that of a parameter is made
    kind: str
    what: str = ""  # the module's or the parameter's name


@dataclass(frozen=True)
class Segment:
    """Computing between two boundaries."""

    name: str  # "forward/" and a layer, or "backward/" and the parameter whose gradient ends it
    begin: Boundary
    end: Boundary
    needs: tuple[str, ...]  # names of parameters that it is the first to need
    forward: bool  # whether the backward pass has not begun
    flops: int  # floating-point operations


def find_segments(workload: Workload) -> list[Segment]:
    """Run one step to find the order in which layers run and gradients are made.

    A parameter is needed by its module or, if that is never called, by the nearest enclosing one
    that is: functions may use the parameters of a module without calling it.
    """
    module = workload.module
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    seen: list[tuple[Boundary, int]] = [(Boundary("begin"), 0)]
    counter = FlopCounterMode(display=False, custom_mapping=_attention_formulas())

    def reached(boundary: Boundary) -> None:
        seen.append((boundary, counter.get_total_flops()))

    every = [name for name, _ in module.named_modules()]
    with torch.random.fork_rng(), counter, watching(workload, every, reached):
        forward_and_backward(workload, reached)
    for name, buffer in module.named_buffers():
        buffer.copy_(before[name])
    module.zero_grad()
    called = {boundary.what for boundary, _ in seen if boundary.kind == "layer"}
    return _between(seen, needs(module, called))


def _attention_formulas() -> dict[Any, Callable[..., int]]:
    """Return formulas of fused attention for PyTorch's counter, which hands over shapes."""

    def formula(name: str) -> Callable[..., int]:
        return lambda *args, out_shape, **named: call_flops(name, args, args, named) or 0

    functions = {name: getattr(torch.ops.aten, name, None) for name in CALLS if "." not in name}
    return {packet: formula(name) for name, packet in functions.items() if packet is not None}


def needs(module: nn.Module, called: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the trained parameters that each of the called modules needs."""
    needed: dict[str, list[str]] = {}
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for owner, part in module.named_modules():
        while owner not in called and owner:
            owner = owner.rpartition(".")[0]
        for parameter in part.parameters(recurse=False):  # which other modules may have too
            if parameter.requires_grad:
                needed.setdefault(owner, []).append(names[id(parameter)])
    return {owner: tuple(names) for owner, names in needed.items()}


def forward_and_backward(workload: Workload, reached: Callable[[Boundary], None]) -> float:
    """Run the module, its loss and the backward pass, and return the loss."""
    loss = workload.loss(workload.module(*workload.inputs))
    reached(Boundary("backward"))
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


@contextmanager
def watching(
    workload: Workload, layers: Sequence[str], reached: Callable[[Boundary], None]
) -> Iterator[None]:
    """Call `reached` when a layer's forward begins, and when a gradient is made."""
    handles: list[Any] = []
    modules = dict(workload.module.named_modules())
    for name in layers:
        layer = Boundary("layer", name)
        handles.append(
            modules[name].register_forward_pre_hook(lambda *_, layer=layer: reached(layer))
        )
    for name, parameter in trained(workload):
        gradient = Boundary("gradient", name)
        register: Any = parameter.register_post_accumulate_grad_hook
        handles.append(register(lambda _, gradient=gradient: reached(gradient)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _between(
    seen: Sequence[tuple[Boundary, int]], needed: dict[str, tuple[str, ...]]
) -> list[Segment]:
    kept = [pair for pair in seen if pair[0].kind != "layer" or pair[0].what in needed]
    last = max(place for place, (boundary, _) in enumerate(kept) if boundary.kind == "gradient")
    segments: list[Segment] = []
    there: set[str] = set()
    named: dict[str, int] = {}
    forward = True
    for (begin, before), (end, after) in pairwise(kept[: last + 1]):
        forward = forward and begin.kind != "backward"
        new = [n for n in needed.get(begin.what, ()) if begin.kind == "layer" and n not in there]
        there.update(new)
        name = _name(begin, end)
        named[name] = number = named.get(name, 0) + 1
        name = name if number == 1 else f"{name} #{number}"
        segments.append(Segment(name, begin, end, tuple(new), forward, after - before))
    return segments


def _name(begin: Boundary, end: Boundary) -> str:
    if end.kind == "gradient":
        return f"backward/{end.what}"
    if begin.kind == "layer":
        return f"forward/{begin.what or 'model'}"
    return "forward/inputs" if begin.kind == "begin" else f"backward/before {end.what or 'model'}"
