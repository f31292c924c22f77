"""What is wrong with the steps of a trace: marks without an end, launches without kernels.

A step of which something was not recorded takes less time than it took. It is left out where
another one is whole, and who leaves it out says so.
"""

import re
from collections.abc import Sequence

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.errors import InputError
from paracosm.timeline.kineto.trace import (
    KinetoTrace,
    Step,
    counted,
    marked_on_device,
    step_marks,
    steps_of,
)

_LAUNCH = re.compile(r"[a-z]+(?:[A-Z]\w*)?Launch(?:\w*Kernel|Device)|[a-z]+GraphLaunch")
"""Calls that launch kernels; a copy of no bytes has no span."""


def mark_faults(trace: KinetoTrace) -> dict[int, str]:
    """Return what is wrong with steps of which no mark has an end, by their numbers."""
    known = {step.number for step in steps_of(trace)}
    return {
        step.number: "its end was not recorded"
        for step in step_marks(trace)
        if step.number not in known
    }


def repeated_marks(trace: KinetoTrace) -> list[str]:
    """Say which steps are marked again at another time: each is there once, the first time."""
    ends = {step.number: step.end for step in steps_of(trace)}
    again = {
        step.number for step in step_marks(trace) if step.begin >= ends.get(step.number, np.inf)
    }
    return [f"step {number} is marked again later, which is left out" for number in sorted(again)]


def step_faults(trace: KinetoTrace, steps: Sequence[Step]) -> dict[int, str]:
    """Return why steps are not whole, by their numbers; those that are whole are not in it."""
    faults: dict[int, str] = {}
    ran = trace.of("op", "runtime", "kernel", "copy", "memset")
    began = np.sort(trace.begin[ran])
    launches = _launches(trace)
    begins = trace.begin[launches]
    lacking = _lack_kernels(trace, launches)
    alone = _without_call(trace)
    for step in steps:
        first, last = np.searchsorted(began, (step.begin, step.end))
        if first == last:
            faults[step.number] = "nothing ran in it"
            continue
        inside = (begins >= step.begin) & (begins < step.end)
        count = int((lacking & inside).sum())
        # Spans that do not say which call launched them are those of such calls.
        count -= int(((alone >= step.begin) & (alone < step.end)).sum())
        if count > 0:
            timeless = np.isin(trace.correlation[launches[inside & lacking]], list(trace.untimed))
            which = "lack their kernel" if count > 1 else "lacks its kernel"
            if timeless.all():
                which = f"{'have' if count > 1 else 'has'} a kernel without a time"
            faults[step.number] = f"{count:,} of {counted(int(inside.sum()), 'launch')} {which}"
    return faults


def whole_steps(trace: KinetoTrace) -> tuple[tuple[Step, ...], dict[int, str]]:
    """Return the steps that are whole, or all where none is, and what is wrong with others."""
    steps = steps_of(trace)
    faults = step_faults(trace, steps)
    whole = tuple(step for step in steps if step.number not in faults)
    return whole or steps, faults | mark_faults(trace)


def check_device(trace: KinetoTrace) -> None:
    """Raise InputError if no span of a device has a time."""
    if trace.untimed and not len(trace.of("kernel", "copy", "memset")):
        raise InputError(
            f"{trace.path}: none of its {counted(len(trace.untimed), 'span')} of the device has a "
            "time: record it anew"
        )


def outside_steps(trace: KinetoTrace, steps: Sequence[Step]) -> int:
    """Return how many spans of the device were launched before, between and after all steps.

    If steps are marked on the device, it is how many began then.
    """
    spans = trace.of("kernel", "copy", "memset")
    calls = trace.of("runtime", "other")
    calls = calls[trace.correlation[calls] >= 0]
    order = calls[np.argsort(trace.correlation[calls], kind="stable")]
    numbers = trace.correlation[order]
    place = np.minimum(np.searchsorted(numbers, trace.correlation[spans]), max(len(order) - 1, 0))
    since = trace.begin[spans].copy()
    if len(order) and not marked_on_device(trace):
        known = numbers[place] == trace.correlation[spans]
        since[known] = trace.begin[order[place[known]]]
    inside = np.zeros(len(spans), dtype=bool)
    for step in steps:
        inside |= (since >= step.begin) & (since < step.end)
    return int((~inside).sum())


def _launches(trace: KinetoTrace) -> Ints:
    """Return the rows of calls that launch kernels, without those within others."""
    codes = [code for code, name in enumerate(trace.names) if _LAUNCH.match(name)]
    rows = trace.of("runtime", "other")
    rows = rows[np.isin(trace.name[rows], codes) & (trace.correlation[rows] >= 0)]
    outermost = np.ones(len(rows), dtype=bool)
    for lane in np.unique(trace.lane[rows]).tolist():
        on_lane = np.flatnonzero(trace.lane[rows] == lane)
        reached = np.maximum.accumulate(trace.end[rows[on_lane]])
        outermost[on_lane[1:]] = trace.begin[rows[on_lane[1:]]] >= reached[:-1]
    return rows[outermost]


def _lack_kernels(trace: KinetoTrace, launches: Ints) -> Bools:
    """Return which of these calls have no span of the device, nor has a call within them."""
    spans = trace.of("kernel", "copy", "memset")
    launched = np.unique(trace.correlation[spans])
    lacking: Bools = ~np.isin(trace.correlation[launches], launched)
    calls = trace.of("runtime", "other")
    calls = calls[np.isin(trace.correlation[calls], launched)]
    for number in np.flatnonzero(lacking).tolist():
        row = launches[number]
        first, last = np.searchsorted(trace.begin[calls], (trace.begin[row], trace.end[row]))
        within = calls[first:last]
        lacking[number] = not (trace.lane[within] == trace.lane[row]).any()
    return lacking


def _without_call(trace: KinetoTrace) -> Floats:
    """Return when spans of the device begin that do not say which call launched them."""
    spans = trace.of("kernel", "copy", "memset")
    begins: Floats = trace.begin[spans[trace.correlation[spans] < 0]]
    return begins
