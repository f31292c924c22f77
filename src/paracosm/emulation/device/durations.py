"""How long each op of a recording takes on hardware of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Codes, Floats
from paracosm.cluster.hardware import Hardware, load_efficiencies
from paracosm.emulation.device.recording import COPY, OP, Recording
from paracosm.graphs.graph import RESOURCES, Graph, Op, Storages
from paracosm.profiling.datasheets import NONE, class_of, common_error, durations_on

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


def device_durations(recording: Recording, hardware: Hardware) -> DeviceDurations:
    """Return how long the ops of a recording take, by datasheets and measured efficiencies.

    The interval takes ops of one class to err together, and classes apart from one another; the
    device's own error is common to all.

    Raises:
        InputError: the device has no peak for the numbers of an op.
    """
    graph = _as_graph(recording)
    estimates = durations_on(graph, hardware)
    copies = np.zeros(len(recording.ops), dtype=np.bool_)
    copies[recording.code[recording.kind == COPY]] = True
    seconds = np.zeros(len(recording.ops))
    classes = []
    for code, (op, estimate) in enumerate(zip(recording.ops, estimates, strict=True)):
        if copies[code]:
            seconds[code] = COPY_LATENCY + op.bytes_written / HOST_LINK
        elif estimate is not None:
            seconds[code] = estimate.duration
        is_known = estimate is not None and not copies[code]
        classes.append(estimate.method if estimate and is_known else class_of(op.name))
        if copies[code]:
            classes[-1] = "copy"
    counts = np.bincount(
        recording.code[(recording.kind == OP) | (recording.kind == COPY)],
        minlength=len(recording.ops),
    )
    time = counts * seconds
    total = float(time.sum())
    sources: dict[str, float] = {}
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    for code, estimate in enumerate(estimates):
        if estimate is None or copies[code] or not total:
            continue
        share = float(time[code]) / total
        sources[estimate.source] = sources.get(estimate.source, 0.0) + share
        kind = classes[code]
        below[kind] = below.get(kind, 0.0) + share * (1 - estimate.low / estimate.duration)
        above[kind] = above.get(kind, 0.0) + share * (estimate.high / estimate.duration - 1)
    common = common_error(hardware, NONE, load_efficiencies())
    return DeviceDurations(
        seconds=seconds,
        classes=tuple(classes),
        relative=(
            max(1 - math.hypot(common, *below.values()), 0.0),
            1 + math.hypot(common, *above.values()),
        ),
        sources=sources,
    )


def op_seconds(op: Op, phase: int, hardware: Hardware, *, is_copy: bool) -> float:
    """Return how long one op takes in a phase, an index into `PHASES`."""
    if is_copy:
        return COPY_LATENCY + op.bytes_written / HOST_LINK
    graph = _graph_of((op,), np.zeros(1, dtype=np.int32), np.full(1, phase, dtype=np.int32))
    (estimate,) = durations_on(graph, hardware)
    return 0.0 if estimate is None else estimate.duration


def _as_graph(recording: Recording) -> Graph:
    """Return the ops that compute, as a graph of which nobody asks what depends on what."""
    rows = recording.rows(recording.kind == OP)
    return _graph_of(recording.ops, rows.code, rows.phase)


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
