"""Begins and ends of all ops in all steps, by the worker's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.profiling.jobs.job_profile import DOWNLINK
from paracosm.profiling.jobs.tensorflow.clocks import EVIDENT, clock_offset
from paracosm.profiling.jobs.tensorflow.columns import Columns
from paracosm.profiling.jobs.tensorflow.places import Place
from paracosm.profiling.jobs.tensorflow.records import Records
from paracosm.profiling.jobs.tensorflow.unnamed import match_by_time

__all__ = ["Times", "times_of"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds from each step's `base`.

    Attributes:
        begin, end: (steps, columns); NaN where nothing was traced.
        offsets: seconds that each server's clock was ahead of the worker's, if that showed.
        placed: columns of transfers that no step has traced: they are set to last from the end of
            the op that sends to the begin of the first that waits for it.
        early: steps in which a tensor came before it was sent, whatever the clocks.
    """

    begin: Floats
    end: Floats
    offsets: dict[Place, float]
    placed: list[int]
    early: Flags


def times_of(steps: Sequence[Records], columns: Columns) -> Times:
    """Return the times of steps that ran the same nodes."""
    shape = (len(steps), len(columns.waits))
    begin, end = np.full(shape, np.nan), np.full(shape, np.nan)
    first = len(columns.keys)
    for row, step in enumerate(steps):
        runs = [step.runs[key] for key in columns.keys]
        begin[row, :first] = [run.begin for run in runs]
        end[row, :first] = [run.end for run in runs]
        _enter_receives(begin[row], end[row], step, columns)
    sent = np.full(shape, -np.inf)
    _enter_sent(sent, end, columns)
    offsets = _offsets(sent, end, columns)
    _correct(begin, end, columns, offsets)
    _enter_sent(sent, end, columns)
    for column, each in enumerate(columns.sent, first):
        place = each.transfer.source if each.transfer.source.is_server else each.transfer.target
        if place in offsets:  # a begin was noted by one clock, and bounded by the other
            starts = np.array([step.begin for step in steps])
            begin[:, column] = np.where(
                np.isfinite(end[:, column]), np.maximum(sent[:, column], starts), np.nan
            )
    placed = _place(begin, end, sent, columns, steps)
    with np.errstate(invalid="ignore"):
        early: Flags = np.any(end < sent - EVIDENT, axis=1)
    return Times(begin, end, offsets, placed, early)


def _enter_receives(begin: Floats, end: Floats, step: Records, columns: Columns) -> None:
    """Enter when each tensor was received in a step; those without a name by their times."""
    first = len(columns.keys)
    for column, each in enumerate(columns.sent, first):
        transfer = each.transfer
        edge = (transfer.source, transfer.target, transfer.tensor, each.number)
        if edge in step.receives:
            begin[column], end[column] = step.receives[edge].begin, step.receives[edge].end
    for place, received in step.unnamed.items():
        open_ = [column for column, each in enumerate(columns.sent, first)
                 if each.transfer.target == place and np.isnan(end[column])]  # fmt: skip
        if len(open_) != len(received):
            continue
        sent = np.array([_latest(end, columns.sent[column - first].senders, step.begin)
                         for column in open_])  # fmt: skip
        needed = np.array([_earliest(begin, columns.sent[column - first].receivers)
                           for column in open_])  # fmt: skip
        for column, found in zip(open_, match_by_time(sent, needed, received), strict=True):
            begin[column], end[column] = received[found]


def _latest(end: Floats, columns: frozenset[int], otherwise: float) -> float:
    return max((float(end[column]) for column in columns), default=otherwise)


def _earliest(begin: Floats, columns: frozenset[int]) -> float:
    return min((float(begin[column]) for column in columns), default=np.inf)


def _enter_sent(sent: Floats, end: Floats, columns: Columns) -> None:
    """Enter when each transfer's tensor was there to be sent; -inf where nobody knows."""
    for column, each in enumerate(columns.sent, len(columns.keys)):
        if each.senders:
            sent[:, column] = end[:, sorted(each.senders)].max(axis=1)


def _offsets(sent: Floats, end: Floats, columns: Columns) -> dict[Place, float]:
    """Return how far the servers' clocks are ahead, of those where it shows."""
    ways: dict[Place, tuple[list[int], list[int]]] = {}
    for column, each in enumerate(columns.sent, len(columns.keys)):
        down = each.resource == DOWNLINK
        place = each.transfer.source if down else each.transfer.target
        ways.setdefault(place, ([], []))[0 if down else 1].append(column)
    with np.errstate(invalid="ignore"):
        taken = np.where(np.isfinite(sent), end - sent, np.nan)
    found = {place: clock_offset(list(taken[:, down]), list(taken[:, up]))
             for place, (down, up) in sorted(ways.items()) if down and up}  # fmt: skip
    return {place: offset for place, offset in found.items() if offset}


def _correct(begin: Floats, end: Floats, columns: Columns, offsets: dict[Place, float]) -> None:
    """Put what a server's clock has timed on the worker's."""
    places = [key[0] for key in columns.keys] + [each.transfer.target for each in columns.sent]
    for column, place in enumerate(places):
        begin[:, column] -= offsets.get(place, 0.0)
        end[:, column] -= offsets.get(place, 0.0)


def _place(
    begin: Floats, end: Floats, sent: Floats, columns: Columns, steps: Sequence[Records]
) -> list[int]:
    """Place transfers that were never traced between the ops at their ends; return which."""
    starts = np.array([step.begin for step in steps])
    placed = []
    for column, each in enumerate(columns.sent, len(columns.keys)):
        if np.isnan(end[:, column]).all() and each.receivers:
            begin[:, column] = np.maximum(sent[:, column], starts)
            needed = begin[:, sorted(each.receivers)].min(axis=1)
            end[:, column] = np.maximum(needed, begin[:, column])
            placed.append(column)
    return placed
