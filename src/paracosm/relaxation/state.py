"""One run while it goes on: what is asked for, the arrays, and what is to come from outside."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import nan
from typing import Any

from paracosm.errors import InputError
from paracosm.relaxation.kernel.functions import UserFunctions
from paracosm.relaxation.kernel.loop import begin, schedule
from paracosm.relaxation.kernel.prepare import Arrays
from paracosm.relaxation.kernel.scalars import (
    BAD,
    BAD_ROWS,
    CULPRIT,
    DUE,
    EXHAUSTED,
    GO_ON,
    NOW,
    SHIFT,
    VERDICT,
)
from paracosm.relaxation.slots import grow
from paracosm.relaxation.spec import RunSpec

__all__ = ["Event", "Run", "begin_update", "schedule_update"]


@dataclass(order=True)
class Event:
    """Something that comes from outside the loop, at a virtual time; in order where times tie."""

    time: float
    order: int
    act: Callable[[], None] = field(compare=False)
    revives: bool = field(compare=False, default=False)


@dataclass
class Run:
    """What a run consists of.

    Attributes:
        spec: what was asked for.
        functions: of the user's.
        arrays: what the loop works on.
        A: the matrix as the processors have it: the problem's own, until a fault strikes it.
        initial_residual, tolerance: norms; the tolerance is NaN where there is none.
        agenda: events to come, a heap.
        faults: what each fault was, in words, the norm of the residual before it, and whether it
            struck data.
        corrupted: whether a fault struck A or b.
        false_detections: how often the residual test said converged, and was wrong.
        down, stale: until when processors are stopped, or write stale values.
        struck: how many faults there were.
    """

    spec: RunSpec
    functions: UserFunctions
    arrays: Arrays
    A: Any
    initial_residual: float = nan
    tolerance: float = nan
    agenda: list[Event] = field(default_factory=list)
    faults: list[tuple[str, float, bool]] = field(default_factory=list)
    corrupted: bool = False
    false_detections: int = 0
    loop: Callable[..., Any] | None = None
    order: Iterator[int] = field(default_factory=itertools.count)
    down: dict[int, float] = field(default_factory=dict)
    stale: dict[int, float] = field(default_factory=dict)
    struck: int = 0

    @property
    def ticks(self) -> float:
        """Units of the loop's clock in a second: ticks, or 1."""
        return self.spec.ticks

    @property
    def virtual_time(self) -> float:
        """The virtual time, in seconds."""
        gauges = self.arrays.gauges
        return float(gauges[NOW] + gauges[SHIFT]) / self.ticks

    def at(self, time: float, act: Callable[[], None], revives: bool = False) -> None:
        """Let something happen at a later virtual time."""
        heapq.heappush(self.agenda, Event(time, next(self.order), act, revives))

    def move_to(self, time: float) -> None:
        """Let the clock stand at `time`, where no processor is due."""
        gauges = self.arrays.gauges
        gauges[NOW] = max(gauges[NOW], time * self.ticks - gauges[SHIFT])
        self.arrays.counters[DUE] = 0
        self.arrays.counters[VERDICT] = 0  # of the instant before


def begin_update(run: Run, who: int) -> None:
    """Let a processor read, now, and compute."""
    a = run.arrays
    while (answer := begin(a.state(), who, float(a.gauges[NOW]))) != GO_ON:
        if answer == BAD_ROWS:
            raise bad_rows(run)
        grow(a)


def schedule_update(run: Run, who: int) -> None:
    """Let a processor's update begin now: draw when it is complete.

    Raises:
        InputError: for a duration that cannot be.
    """
    answer = schedule(run.arrays.state(), who, float(run.arrays.gauges[NOW]))
    if answer != GO_ON:
        raise bad_time(run, answer)


def bad_rows(run: Run) -> InputError:
    """Return the error for rows that a compiled pattern function made up."""
    who, last = int(run.arrays.counters[CULPRIT]), run.spec.problem.n - 1
    number = run.arrays.flight.updates[who]
    return InputError(f"pattern function: processor {who}, update {number}: rows are 0 to {last}")


def bad_time(run: Run, answer: int) -> InputError:
    """Return the error for a duration that the loop refused."""
    a = run.arrays
    who = int(a.counters[CULPRIT])
    number, value = int(a.flight.updates[who]), float(a.gauges[BAD])
    watcher = who == run.spec.processors
    where = f"time: {'the residual processor' if watcher else f'processor {who}'}, update {number}"
    if answer == EXHAUSTED or value != value:
        return InputError(
            f"{where}: not a number: a recording has come to its end (cycle=true starts it again), "
            "or a function returned NaN"
        )
    if run.spec.config.scale_factor and value == 0:
        return InputError(f"{where}: the duration rounds to 0 ticks: give a larger scale factor")
    return InputError(f"{where}: {value / run.ticks:g} s; a duration has to be finite and above 0")
