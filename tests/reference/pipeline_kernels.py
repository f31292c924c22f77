"""A pipeline of one forward and one backward pass in turn (1F1B), played kernel by kernel.

Each stage has one stream. A kernel begins when the one before has ended and its call, of which the
host makes one a microsecond, has returned. One that exchanges messages ends with the last of them;
a message goes when the kernels of both of its ends have begun. Times are whole microseconds.

The order is that of Narayanan et al., "Efficient large-scale language model training on GPU
clusters using Megatron-LM" (SC 2021), section 2.2.1: where a stage sends one way and receives from
there, one kernel does both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    """What a stage runs: computing of so many microseconds, or (direction, other stage) pairs."""

    name: str
    duration: int = 0
    messages: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Span:
    """A kernel as it ran."""

    kernel: Kernel
    begin: int
    end: int


def kernels_of(stage: int, stages: int, batches: int, forward: int, backward: int) -> list[Kernel]:
    """Return the kernels of one stage, in order."""
    before, after = stage - 1, stage + 1
    last = stages - 1
    ops: list[Kernel] = []

    def exchange(*messages: tuple[str, int]) -> None:
        there = tuple(message for message in messages if 0 <= message[1] <= last)
        if there:
            ops.append(Kernel("exchange", messages=there))

    warmup = min(last - stage, batches)
    for _ in range(warmup):
        exchange(("recv", before))
        ops.append(Kernel("forward", forward))
        exchange(("send", after))
    if warmup < batches:
        exchange(("recv", before))
    for batch in range(warmup, batches):
        ops.append(Kernel("forward", forward))
        exchange(("send", after), ("recv", after))
        ops.append(Kernel("backward", backward))
        more = batch + 1 < batches
        exchange(("send", before), *([("recv", before)] if more else []))
    for _ in range(warmup):
        exchange(("recv", after))
        ops.append(Kernel("backward", backward))
        exchange(("send", before))
    return ops


def played(stages: list[list[Kernel]], transfer: int) -> list[list[Span]]:
    """Return when each kernel of each stage runs; a message takes `transfer` microseconds."""
    spans: list[list[Span]] = [[] for _ in stages]
    begun: dict[tuple[int, int], int] = {}  # by stage and place of the kernel
    ends: dict[tuple[int, int, int], dict[str, tuple[int, int]]] = {}
    for stage, kernels in enumerate(stages):
        count: dict[tuple[str, int], int] = {}
        for place, kernel in enumerate(kernels):
            for way, other in kernel.messages:
                number = count[way, other] = count.get((way, other), 0) + 1
                ways = (stage, other) if way == "send" else (other, stage)
                ends.setdefault((*ways, number), {})[way] = (stage, place)
    partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for both in ends.values():
        one, other = both["send"], both["recv"]
        partners.setdefault(one, []).append(other)
        partners.setdefault(other, []).append(one)
    moved = True
    while moved:
        moved = False
        for stage, kernels in enumerate(stages):
            place = len(spans[stage])
            if place == len(kernels):
                continue
            here, kernel = (stage, place), kernels[place]
            free = spans[stage][-1].end if place else 0
            if here not in begun:
                begun[here] = max(free, place + 1)
                moved = True
            others = partners.get(here, [])
            if all(other in begun for other in others):
                begin = begun[here]
                came = [max(begin, begun[other]) for other in others]
                end = max(came) + transfer if others else begin + kernel.duration
                spans[stage].append(Span(kernel, begin, end))
                moved = True
    assert all(len(ran) == len(kernels) for ran, kernels in zip(spans, stages, strict=True))
    return spans
