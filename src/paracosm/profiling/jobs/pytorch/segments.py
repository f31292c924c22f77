"""What a worker computes between two moments at which it waits for, or hands on, a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from paracosm.models import Workload
from paracosm.profiling.jobs.pytorch.setup import trained

__all__ = ["Boundary", "Segment", "find_segments", "forward_and_backward", "needs", "watching"]


@dataclass(frozen=True)
class Boundary:
    """A moment of a step.

    Attributes:
        kind: "begin" of the step; "layer": a module's forward begins; "backward" begins;
            "gradient": that of a parameter is made.
        what: the module's or the parameter's name.
    """

    kind: str
    what: str = ""


@dataclass(frozen=True)
class Segment:
    """Computing from one boundary to the next.

    Attributes:
        name: "forward/" and a layer, or "backward/" and the parameter whose gradient ends it.
        begin, end: its boundaries.
        needs: names of parameters that it is the first to need.
        forward: whether the backward pass has not begun.
        flops: floating-point operations.
    """

    name: str
    begin: Boundary
    end: Boundary
    needs: tuple[str, ...]
    forward: bool
    flops: int


def find_segments(workload: Workload) -> list[Segment]:
    """Run one step here to see in which order layers run and gradients are made.

    A parameter is needed by the module that has it or, if that is never called, by the nearest one
    around it that is: functions may use the parameters of a module without calling it.
    """
    module = workload.module
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    seen: list[tuple[Boundary, int]] = [(Boundary("begin"), 0)]
    counter = FlopCounterMode(display=False)

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


def needs(module: nn.Module, called: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the trained parameters that each of the called modules needs."""
    found: dict[str, list[str]] = {}
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for owner, part in module.named_modules():
        while owner not in called and owner:
            owner = owner.rpartition(".")[0]
        for parameter in part.parameters(recurse=False):  # which other modules may have too
            if parameter.requires_grad:
                found.setdefault(owner, []).append(names[id(parameter)])
    return {owner: tuple(names) for owner, names in found.items()}


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
    """Have `reached` called when a layer's forward begins, and when a gradient is made."""
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
    kept = [each for each in seen if each[0].kind != "layer" or each[0].what in needed]
    last = max(place for place, (boundary, _) in enumerate(kept) if boundary.kind == "gradient")
    found: list[Segment] = []
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
        found.append(Segment(name, begin, end, tuple(new), forward, after - before))
    return found


def _name(begin: Boundary, end: Boundary) -> str:
    if end.kind == "gradient":
        return f"backward/{end.what}"
    if begin.kind == "layer":
        return f"forward/{begin.what or 'model'}"
    return "forward/inputs" if begin.kind == "begin" else f"backward/before {end.what or 'model'}"
