"""How long each op of a recording takes: as it was timed, or by the catalogue of hardware."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paracosm.arrays import Codes, Floats
from paracosm.cluster.hardware import Hardware, load_efficiencies
from paracosm.emulation.device.op_costs import CUSTOM, OpCost, given_seconds
from paracosm.emulation.device.recording import COPY, OP, Recording, iterations_of
from paracosm.emulation.device.timed_ops import TimedOps, exact_seconds, timed_ops
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, Storages
from paracosm.profiling.datasheets import (
    KNOWN,
    NONE,
    class_of,
    common_error,
    default_stack,
    durations_on,
)
from paracosm.profiling.durations import work_of

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate

HOST_LINK = 25e9
"""Bytes/s between host and device: assumed, what PCIe 4.0 with 16 lanes reaches; the catalogue has
no such link."""

COPY_LATENCY = 10e-6
"""Seconds that any copy between host and device takes: assumed."""


@dataclass(frozen=True, eq=False)
class DeviceDurations:
    """Seconds of the distinct ops of a recording."""

    seconds: Floats  # of each
    classes: tuple[str, ...]  # of each, as `profiling.datasheets.class_of`; "copy" of a copy
    # the ends of the 90 % interval of the time of all of them, over that time
    relative: tuple[float, float]
    sources: Mapping[str, float]  # share of the time by how it is known, one of `SOURCES`
    timed: TimedOps | None = None  # where some were timed


def device_durations(
    recording: Recording,
    hardware: Hardware,
    database: Path | None = None,
    costs: Sequence[OpCost] = (),
) -> DeviceDurations:
    """Return how long the ops of a recording take.

    Those of the script's own take what `costs` says.
    Ops that were timed on the device take that, and those of the same types what follows from it;
    others what datasheets and measured efficiencies say. The interval takes ops of one class to err
    together, and classes apart from one another; the device's own error is common to all.

    Raises:
        InputError: no op runs on the device; it has no peak for the numbers of an op; the database
            cannot be used; nobody knows how long an op of the script's own takes.
    """
    rows = recording.rows(recording.kind == OP)
    if not len(rows.code):
        raise InputError(
            "no op of the script runs on the device: move model and data to cuda, or leave out "
            "--hardware, and the script computes on this CPU"
        )
    timed: TimedOps | None = None
    estimates: list[Estimate | None] = [None] * len(recording.ops)
    if database is not None:
        graph = _graph_of(recording.ops, rows.code, rows.phase)
        timed = timed_ops(recording, graph, hardware, database)
        estimates = list(timed.durations)
    phases = dict(zip(rows.code.tolist(), rows.phase.tolist(), strict=True))
    classes = [
        class_of(op.name, PHASES[phases.get(code, 0)]) for code, op in enumerate(recording.ops)
    ]
    is_known = np.array([estimate is not None for estimate in estimates], dtype=np.bool_)
    rest = recording.rows((recording.kind == OP) & ~is_known[recording.code])
    if len(rest.code):
        by_datasheet = durations_on(_graph_of(recording.ops, rest.code, rest.phase), hardware)
        for code, estimate in enumerate(by_datasheet):
            if estimate is not None:
                estimates[code] = estimate
    seconds = np.array([0.0 if estimate is None else estimate.duration for estimate in estimates])
    for code in np.unique(recording.code[recording.kind == COPY]).tolist():
        seconds[code] = COPY_LATENCY + recording.ops[code].bytes_written / HOST_LINK
        estimates[code], classes[code] = None, "copy"
    for code, op in enumerate(recording.ops):
        if op.name.startswith(CUSTOM):
            seconds[code] = given_seconds(op.name, costs)
            estimates[code], classes[code] = None, "custom"
    iteration = iterations_of(recording)[-1] if len(recording.steps) else recording
    counts = np.bincount(
        iteration.code[(iteration.kind == OP) | (iteration.kind == COPY)],
        minlength=len(recording.ops),
    )
    time = counts * seconds
    total = float(time.sum())
    sources: dict[str, float] = {}
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    for code, estimate in enumerate(estimates):
        share = float(time[code]) / total if total else 0.0
        if classes[code] == "custom" and share:
            sources["given"] = sources.get("given", 0.0) + share
        if estimate is None or not total or not estimate.duration:
            continue
        sources[estimate.source] = sources.get(estimate.source, 0.0) + share
        kind = classes[code] if estimate.source != KNOWN["timed"] else f"{classes[code]} {code}"
        below[kind] = below.get(kind, 0.0) + share * (1 - estimate.low / estimate.duration)
        above[kind] = above.get(kind, 0.0) + share * (estimate.high / estimate.duration - 1)
    by_sheet = sum(share for source, share in sources.items() if source in KNOWN.values())
    kernels = sources.get(KNOWN["timed"], 0.0) / by_sheet if by_sheet else 0.0
    common = by_sheet * common_error(
        *(hardware, NONE, load_efficiencies(), default_stack(), kernels)
    )
    if timed is not None:
        common += (1 - by_sheet) * timed.common
    return DeviceDurations(
        seconds=seconds,
        classes=tuple(classes),
        relative=(
            max(1 - math.hypot(common, *below.values()), 0.0),
            1 + math.hypot(common, *above.values()),
        ),
        sources=sources,
        timed=timed,
    )


def recorded_graph(recordings: Sequence[Recording]) -> Graph:
    """Return the ops of a typical iteration of each recording, as one graph without dependencies.

    Ops that do the same work are one, whatever factors they multiply by.
    """
    ops: dict[tuple[str, str, int], Op] = {}
    codes, phases = [], []
    numbers: dict[tuple[str, str, int], int] = {}
    for recording in recordings:
        rows = iterations_of(recording)[-1]
        rows = rows.rows(rows.kind == OP)
        works = [work_of(op) for op in recording.ops]
        for code in np.unique(rows.code).tolist():
            ops.setdefault(works[code], recording.ops[code])
            numbers.setdefault(works[code], len(numbers))
        codes.append(np.array([numbers[works[code]] for code in rows.code.tolist()]))
        phases.append(rows.phase)
    code = np.concatenate(codes).astype(np.int32)
    return _graph_of(tuple(ops.values()), code, np.concatenate(phases))


class OpSeconds:
    """How long one op takes at a time: as it was timed, or by the datasheet."""

    def __init__(
        self, hardware: Hardware, database: Path | None, costs: Sequence[OpCost] = ()
    ) -> None:
        self._hardware, self._costs = hardware, costs
        self._timed = {} if database is None else exact_seconds(hardware, database)

    def __call__(self, op: Op, phase: int, is_copy: bool) -> float:
        """Return the seconds of an op in a phase, an index into `PHASES`."""
        if is_copy:
            return COPY_LATENCY + op.bytes_written / HOST_LINK
        if op.name.startswith(CUSTOM):
            return given_seconds(op.name, self._costs)
        timed = self._timed.get(work_of(op))
        if timed is not None:
            return timed
        graph = _graph_of((op,), np.zeros(1, dtype=np.int32), np.full(1, phase, dtype=np.int32))
        (estimate,) = durations_on(graph, self._hardware)
        return 0.0 if estimate is None else estimate.duration


def _graph_of(ops: tuple[Op, ...], code: Codes, phase: Codes) -> Graph:
    count = len(code)
    nothing = np.zeros(0, dtype=np.int64)
    return Graph(
        ops=ops,
        names=("",),
        groups=(),
        id=np.arange(count),
        op=code,
        name=np.zeros(count, dtype=np.int32),
        phase=phase,
        resource=np.full(count, RESOURCES.index("compute"), dtype=np.int32),
        group=np.full(count, -1, dtype=np.int32),
        duration=np.full(count, np.nan),
        offsets=np.zeros(count + 1, dtype=np.int64),
        dependencies=nothing,
        storages=Storages(nothing, nothing, nothing),
    )
