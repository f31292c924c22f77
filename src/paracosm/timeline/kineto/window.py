"""Which part of a trace is played again: whole steps, as `ProfilerStep#k` marks them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.errors import InputError
from paracosm.timeline.kineto.trace import KinetoTrace
from paracosm.timeline.kineto.words import is_backward

__all__ = ["Step", "Window", "backward_threads", "steps_of", "window_of"]

_STEP = re.compile(r"ProfilerStep\*?#(\d+)$")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the training loop: number, begin and end (seconds from the trace's origin)."""

    number: int
    begin: float
    end: float

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Window:
    """What is played: from `begin` to `end` on the host, in seconds from the trace's origin.

    Attributes:
        thread: lane of the thread that runs the training loop; -1 where the trace has no threads.
        steps: those in it; none where the trace marks none, and is played whole.
    """

    begin: float
    end: float
    thread: int
    steps: tuple[Step, ...]


def steps_of(trace: KinetoTrace) -> tuple[Step, ...]:
    """Return the steps that the profiler marked on the host, in order."""
    found = {}
    for row in trace.of("annotation"):
        match = _STEP.match(trace.text(row))
        if match and trace.lanes[trace.lane[row]].kind == "thread":
            begin = float(trace.begin[row])
            found[int(match[1])] = Step(int(match[1]), begin, float(trace.end[row]))
    return tuple(found[number] for number in sorted(found))


def window_of(trace: KinetoTrace, numbers: Sequence[int] | None = None) -> Window:
    """Return the window of these steps, which must follow each other; of all without `numbers`.

    Raises:
        InputError: the trace lacks a step.
    """
    marked = steps_of(trace)
    if numbers is not None:
        known = {step.number: step for step in marked}
        for number in numbers:
            if number not in known:
                has = f"{marked[0].number} to {marked[-1].number}" if marked else "none"
                raise InputError(f"{trace.path}: no step {number}: it has {has}")
        marked = tuple(known[number] for number in sorted(numbers))
    thread = _main_thread(trace)
    if not marked:
        return Window(0.0, float(trace.end.max(initial=0.0)), thread, ())
    return Window(marked[0].begin, marked[-1].end, thread, marked)


def _main_thread(trace: KinetoTrace) -> int:
    """Return the thread of the training loop: that of the steps, or that with the most ops.

    Threads of the backward pass have ops too; they are known by autograd's own.
    """
    for row in trace.of("annotation"):
        lane = int(trace.lane[row])
        if _STEP.match(trace.text(row)) and trace.lanes[lane].kind == "thread":
            return lane
    backward = backward_threads(trace)
    counts = np.bincount(trace.lane[trace.of("op", "runtime", "other")], minlength=len(trace.lanes))
    for lane, what in enumerate(trace.lanes):
        if what.kind != "thread" or lane in backward:
            counts[lane] = 0
    return int(np.argmax(counts)) if counts.max(initial=0) else -1


def backward_threads(trace: KinetoTrace) -> set[int]:
    """Return the threads on which autograd runs backward passes, where they are not the loop's.

    The loop's thread is that of the steps; without any, one whose first op is no backward pass's.
    """
    engine = [code for code, name in enumerate(trace.names) if is_backward(name)]
    lanes = set(np.unique(trace.lane[np.isin(trace.name, engine)]).tolist())
    forward = {
        int(trace.lane[row]) for row in trace.of("annotation") if _STEP.match(trace.text(row))
    }
    if not forward:
        ops = trace.of("op")
        threads, first = np.unique(trace.lane[ops], return_index=True)
        begins = zip(threads.tolist(), trace.name[ops[first]].tolist(), strict=True)
        forward = {lane for lane, name in begins if name not in engine}
    return lanes - forward
