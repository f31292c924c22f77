"""Traced TensorFlow steps as a job profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs.check import check_job_profile
from paracosm.profiling.jobs.dependencies import dependencies_of
from paracosm.profiling.jobs.job_profile import JobProfile
from paracosm.profiling.jobs.tensorflow.columns import Columns, columns_of
from paracosm.profiling.jobs.tensorflow.records import Key, Records, records_of
from paracosm.profiling.jobs.tensorflow.structure import structure_of
from paracosm.profiling.jobs.tensorflow.times import Times, times_of
from paracosm.profiling.jobs.tensorflow.traced_step import Node, TracedStep, read_traced_step

__all__ = ["profile_of_steps", "read_steps"]

Floats = npt.NDArray[np.float64]

_TWICE = 2000
"""Nanoseconds: a timeline has whole microseconds of a step that a RunMetadata has exactly."""


def read_steps(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None
) -> JobProfile:
    """Return the profile in RunMetadata and timelines of a job of one worker, a step a file.

    What the steps have in common is taken from them: ops that most of them ran, and tensors that
    went from one machine to the other. Steps that lack an op, ran others, or have times that cannot
    be, are left out and counted; a transfer may lack its times, which servers do not always hand
    over. A step lasts from the begin of the worker's
    first op to the end of the last op; where steps were not traced one after the other, the gap
    between them is the median of the others, or 0.

    Args:
        paths: RunMetadata (or StepStats) in protobuf's binary form and timelines, gzipped or not.
        progress: called with files read and in all.

    Raises:
        InputError: a file is none of these or damaged; the job had several workers, or no server;
            a tensor's bytes or sender are in no step; no step is left.
    """
    if not paths:
        raise InputError("no file of a step was given")
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    steps = []
    for path in paths:
        steps.append(read_traced_step(path))
        if progress is not None:
            progress(len(steps), len(paths))
    return profile_of_steps(steps, where, {"files": [path.name for path in paths]})


def profile_of_steps(
    steps: Sequence[TracedStep], where: str, provenance: Mapping[str, Any]
) -> JobProfile:
    """Return the profile of steps that were read.

    Args:
        steps: in any order.
        where: their files, for messages.
        provenance: what else is known of their source.

    Raises:
        InputError: as `read_steps`.
    """
    every = sorted(map(records_of, steps), key=lambda each: (each.base, each.step.where))
    dropped: Counter[str] = Counter()
    every = _each_once(every, dropped)
    usual = _usual_runs(every)
    alike = [each for each in every if each.runs.keys() == usual]
    for each in every:
        if each.runs.keys() != usual:
            dropped["ops are missing" if usual - each.runs.keys() else "other ops ran"] += 1
    if not alike:
        raise InputError(_no_step(every, usual))
    reference = max(alike, key=lambda each: (len(each.receives), -each.base))
    nodes = _graph(alike, usual)
    structure = structure_of(reference, nodes)
    columns = columns_of(structure, reference, every)
    times = times_of(alike, columns)
    kept = _kept(alike, times, dropped)
    told = {
        "source": "TensorFlow step statistics",
        **provenance,
        "tensors_matched": "by the partitioned graph" if structure.exact else "by names and order",
        "inputs_not_traced": structure.not_traced,
        "clocks_ahead": {str(place): offset for place, offset in times.offsets.items()},
        "transfers_not_traced": int(np.isnan(times.end[kept, len(columns.keys) :]).sum()),
        "transfers_never_traced": [columns.names()[column] for column in times.placed],
        "between_servers": dict(zip(("transfers", "bytes"), columns.between_servers, strict=True)),
    }
    if any(each.unnamed for each in alike):
        told["tensors_matched"] = "by their times"
    return _profile(alike, columns, times, kept, dict(dropped), told, where)


def _each_once(steps: Sequence[Records], dropped: Counter[str]) -> list[Records]:
    """Leave out a step that two files tell of, but for the one that tells more."""
    once: list[Records] = []
    for step in steps:
        if once and step.base - once[-1].base <= _TWICE:
            dropped["told by another file as well"] += 1
            if len(step.receives) > len(once[-1].receives):
                once[-1] = step
            continue
        once.append(step)
    return once


def _usual_runs(steps: Sequence[Records]) -> set[Key]:
    """Return what more than half of the steps ran."""
    count = Counter(key for step in steps for key in step.runs)
    return {key for key, times in count.items() if 2 * times > len(steps)}


def _no_step(steps: Sequence[Records], usual: set[Key]) -> str:
    step = min(steps, key=lambda each: len(each.runs.keys() ^ usual))
    place, name, _ = min(step.runs.keys() ^ usual)
    lacks = "lacks" if (place, name, 0) not in step.runs else "has"
    return (
        f"{step.step.where}: the step {lacks} {name} on {place}, other than most: no step ran the "
        f"ops that most of the {len(steps)} steps did: trace steps that fetch the same"
    )


def _graph(steps: Sequence[Records], usual: set[Key]) -> Mapping[str, Node]:
    """Return the partitioned graph of a step that knows all nodes that ran; empty if none does."""
    names = {name for _, name, _ in usual}
    return next((each.step.nodes for each in steps if names <= each.step.nodes.keys()), {})


def _kept(steps: Sequence[Records], times: Times, dropped: Counter[str]) -> npt.NDArray[np.bool_]:
    """Return which steps have no tensor that came before it was sent; count the others."""
    dropped["a tensor came before it was sent"] += int(times.early.sum())
    if times.early.all():
        raise InputError(
            f"{steps[0].step.where}: a tensor came before it was sent, whichever way the clocks "
            f"are set: no step is left of {len(steps)}"
        )
    return ~times.early


def _profile(
    steps: Sequence[Records],
    columns: Columns,
    times: Times,
    kept: npt.NDArray[np.bool_],
    dropped: dict[str, int],
    provenance: dict[str, Any],
    where: str,
) -> JobProfile:
    begin, end = _spans(steps, times)
    from_first = np.array([(step.base - steps[0].base) / 1e9 for step in steps])
    order = np.argsort(times.begin[np.argmax(kept)], kind="stable")
    place = np.argsort(order, kind="stable")
    first, dependencies = dependencies_of(
        [np.sort(place[sorted(columns.waits[column])]).tolist() for column in order]
    )
    names, kinds = columns.names(), [*columns.kinds, *["RecvTensor"] * len(columns.sent)]
    profile = check_job_profile(
        JobProfile(
            names=tuple(names[column] for column in order),
            kinds=tuple(kinds[column] for column in order),
            resource=np.array(columns.resources(), np.int8)[order],
            server=np.array(columns.servers(), np.int64)[order],
            size=np.array(columns.sizes(), np.int64)[order],
            first_dependency=first,
            dependencies=dependencies,
            begin=(times.begin - begin[:, None])[kept][:, order],
            end=(times.end - begin[:, None])[kept][:, order],
            step_begin=(from_first + begin)[kept],
            step_end=(from_first + end)[kept],
            dropped={reason: count for reason, count in dropped.items() if count},
            provenance=provenance,
        ),
        where,
    )
    pauses = np.array([step.step.pause for step in steps])
    return _one_after_another(profile, from_first + begin, from_first + end, pauses)


def _spans(steps: Sequence[Records], times: Times) -> tuple[Floats, Floats]:
    """Return when each step began and ended, in seconds from its base."""
    begin = np.array([step.begin for step in steps])
    end = np.nanmax(np.where(np.isfinite(times.end), times.end, -np.inf), axis=1)
    for row, step in enumerate(steps):
        if step.step.span is not None:
            begin[row], end[row] = ((time - step.base) / 1e9 for time in step.step.span)
    return begin, end


def _one_after_another(
    profile: JobProfile, begin: Floats, end: Floats, pauses: Floats
) -> JobProfile:
    """Set steps behind each other with the gaps that followed them, as if none had been left out.

    Args:
        profile: of the steps that are left.
        begin, end: of all steps that were traced, in seconds.
        pauses: seconds after each that are no part of the gap.
    """
    length = end - begin
    gaps = np.maximum(begin[1:] - end[:-1] - pauses[:-1], 0.0)
    # A gap longer than a step is one in which other steps ran, that were not traced.
    near = gaps[gaps < np.median(length)] if len(gaps) else gaps
    usual = float(np.median(near)) if len(near) else 0.0
    after = np.append(np.where(gaps < np.median(length), gaps, usual), usual)
    own = profile.step_end - profile.step_begin
    follows = after[np.searchsorted(begin, profile.step_begin)]
    first = np.concatenate([[0.0], np.cumsum(own + follows)[:-1]])
    return replace(profile, step_begin=first, step_end=first + own)
