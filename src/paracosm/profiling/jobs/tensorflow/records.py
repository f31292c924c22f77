"""The records of one step by what they are of: runs of nodes, and tensors that were received."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paracosm.graphs.importers.tensorflow.step_ops import StepOp, is_stream, kernel_node
from paracosm.profiling.jobs.tensorflow.places import Place, check_places, place_of
from paracosm.profiling.jobs.tensorflow.traced_step import TracedStep

__all__ = ["Edge", "Key", "Receive", "Records", "Run", "records_of"]

Key = tuple[Place, str, int]
"""A run of a node: where, its name, and which of its runs in the step (in a loop it has many)."""

Edge = tuple[Place, Place, str, int]
"""A transfer: from where, to where, the tensor's name, and which of its transfers in the step."""

_RECEIVE = "RecvTensor"
_SOURCE = "_SOURCE"  # with which every executor begins
_LABEL = re.compile(
    r"\[(?P<size>[\d.]+)(?P<unit>B|MB)\](?: \[[^\]]*\])? (?P<tensor>.+) from (?P<source>\S+) to "
)
"""Of a receive: "[1024B] [9.7Mb/s] edge_13_b1/read from /job:ps/... to /job:worker/...". Large ones
have mebibytes with one decimal; their exact bytes stand in what is allocated."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a node; times in seconds from the records' `base`, NaN where none was traced."""

    kind: str
    inputs: tuple[str, ...]
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Receive:
    """One tensor that came from another place; bytes, and times as those of a run."""

    size: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Records:
    """One step.

    Attributes:
        step: as it was read.
        base: nanoseconds of the clocks at which times begin.
        begin: when the worker's executor began, in seconds as those of runs.
        runs: of nodes.
        receives: of tensors whose names were traced.
        unnamed: begins and ends of those whose names were not, as in timelines, by receiver.
    """

    step: TracedStep
    base: int
    begin: float
    runs: Mapping[Key, Run]
    receives: Mapping[Edge, Receive]
    unnamed: Mapping[Place, Sequence[tuple[float, float]]]


def records_of(step: TracedStep) -> Records:
    """Sort what was traced of a step.

    Raises:
        InputError: it is not a step of one worker and its servers.
    """
    check_places(step.ops, step.where)
    base = min((op.start for op in step.ops if op.start), default=0)
    placed = [(place, op) for op in step.ops if (place := _executor(op)) is not None]
    placed.sort(key=lambda each: (each[1].start, each[1].name))
    count: Counter[tuple[object, ...]] = Counter()
    runs: dict[Key, Run] = {}
    receives: dict[Edge, Receive] = {}
    unnamed: dict[Place, list[tuple[float, float]]] = {}
    for place, op in placed:
        begin, end = _times(op, base)
        if op.op == _RECEIVE:
            label = _LABEL.match(op.label)
            source = place_of(label["source"]) if label else None
            if label is None or source is None:
                unnamed.setdefault(place, []).append((begin, end))
                continue
            tensor = (source, place, label["tensor"])
            told = round(float(label["size"]) * (1 << 20 if label["unit"] == "MB" else 1))
            size = told if op.allocated is None else op.allocated
            receives[*tensor, count[tensor]] = Receive(size, begin, end)
            count[tensor] += 1
        else:
            node = (place, op.name)
            runs[*node, count[node]] = Run(op.op, op.inputs, begin, end)
            count[node] += 1
    _place_kernels(runs, [op for op in step.ops if is_stream(op.device)], base)
    begins = [run.begin for key, run in runs.items() if not key[0].is_server]
    sources = [run.begin for key, run in runs.items() if key[1] == _SOURCE and not key[0].is_server]
    begin = min(sources or begins, default=math.nan)
    runs = {key: run for key, run in runs.items() if key[1] != _SOURCE}
    return Records(step, base, begin, runs, receives, unnamed)


def _executor(op: StepOp) -> Place | None:
    return None if is_stream(op.device) else place_of(op.device)


def _times(op: StepOp, base: int) -> tuple[float, float]:
    begin = (op.start - base) / 1e9 if op.start else math.nan
    return begin, begin + op.duration if op.ended else math.nan


def _place_kernels(runs: dict[Key, Run], traced: Sequence[StepOp], base: int) -> None:
    """Let nodes of an accelerator last from their first kernel's begin to their last one's end.

    The executor's own times say only when the kernels were issued. Streams are listed one by one,
    and all of them again.
    """
    every = [op for op in traced if op.device.endswith("stream:all")] or list(traced)
    kernels: dict[str, list[tuple[float, float]]] = {}
    for op in sorted(every, key=lambda op: (op.start, op.name)):
        kernels.setdefault(kernel_node(op.name), []).append(_times(op, base))
    keys: dict[str, list[Key]] = {}
    for key in runs:
        if not key[0].is_server:
            keys.setdefault(key[1], []).append(key)
    for node, found in kernels.items():
        of_run, rest = divmod(len(found), len(keys.get(node, found)))
        if node not in keys or rest:
            continue
        for number, key in enumerate(keys[node]):
            own = found[number * of_run : (number + 1) * of_run]
            runs[key] = replace(runs[key], begin=own[0][0], end=max(end for _, end in own))
