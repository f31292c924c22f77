"""A software stack as it was measured on a device: by op timings, and by timings of collectives.

Of each class of ops a stack says how long they take, over what is predicted by another stack that
it is like: the sum of the timings over that of the predictions, as for a measurement that corrects
an answer. The interval of a class is how far its ops are apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from paracosm.cluster.hardware import Hardware, Stack
from paracosm.cluster.hardware.stacks import Measured, MeasuredClass, MeasuredLink
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.datasheets import class_of, durations_on
from paracosm.profiling.durations import environment_of, environments_in
from paracosm.profiling.links.measure import rows
from paracosm.profiling.samples import LinkTiming

FEW = 5  # ops of a class, below which its interval is no narrower than that of the prediction
JOINING = ("all_reduce", "all_gather", "reduce_scatter", "send_recv", "device to device")
"""Kinds of transfers that say what joins devices, the first that was measured."""


def measured_stack(path: Path, hardware: Hardware, like: Stack) -> Stack:
    """Return the stack that a profile database has measured on hardware.

    Args:
        path: the database, by `paracosm profile ops`, or `paracosm measure link --db`.
        hardware: on which it was measured.
        like: the stack whose kernels and fusion it has.

    Raises:
        InputError: the database cannot be used, or has no timing of ops or links on this hardware.
    """
    ops, of_ops = {}, ""
    if environments_in(path):
        environment = environment_of(path, hardware, strict=True)
        with ProfileDatabase.open(path, readonly=True) as database:
            timings = database.timings(environment, cache="cold")
        seconds: dict[Op, list[float]] = {}
        for timing in timings:
            seconds.setdefault(timing.op, []).append(timing.duration)
        ops = measured_classes({op: float(np.mean(s)) for op, s in seconds.items()}, hardware, like)
        of_ops = f"{len(seconds)} ops timed with {environment.framework}"
    with ProfileDatabase.open(path, readonly=True) as database:
        several = hardware.inner is not None  # devices in a node, which links join
        inner, of_links = _link(database.links() if several else [], hardware)
    if not ops and inner is None:
        raise InputError(
            f"{path}: no timings of ops or links on {hardware.device.title}: paracosm profile ops "
            "and paracosm measure link --db add them there"
        )
    measured = " and ".join(filter(None, (of_ops, of_links)))
    return like.model_copy(
        update={
            "title": f"{like.title}, as measured on {hardware.device.title}"[:200],
            "also": {},
            "common": None,
            "measured": {hardware.name: Measured(ops=ops, inner=inner)},
            "source": f"{path.name}: {measured}; else {like.source}"[:800],
        }
    )


def measured_classes(
    seconds: Mapping[Op, float], hardware: Hardware, like: Stack
) -> dict[str, MeasuredClass]:
    """Return what timed ops take by class, over what a stack predicts on hardware.

    Args:
        seconds: of each op that was timed.
        hardware: on which.
        like: the stack of the predictions.
    """
    graph = build_graph(Node(id=row, op=op) for row, op in enumerate(seconds))
    predicted = durations_on(graph, hardware, stack=like)
    ratios: dict[str, list[tuple[float, float, float]]] = {}
    for op, estimate in zip(graph.ops, predicted, strict=True):
        if estimate is not None and seconds[op] > 0:
            wide = math.log(estimate.high / estimate.duration)
            row = seconds[op], estimate.duration, wide
            ratios.setdefault(class_of(op.name), []).append(row)
    return {op_class: _measured(found) for op_class, found in sorted(ratios.items())}


def _measured(ratios: Sequence[tuple[float, float, float]]) -> MeasuredClass:
    timed, predicted, wide = np.array(ratios).T
    factor = float(timed.sum() / predicted.sum())
    apart = float(np.quantile(np.abs(np.log(timed / predicted / factor)), 0.9))
    spread = apart if len(ratios) >= FEW else max(apart, float(wide.max()))
    return MeasuredClass(
        time=float(f"{factor:.4g}"), spread=float(f"{spread:.3g}"), ops=len(ratios)
    )


def _link(timings: Sequence[LinkTiming], hardware: Hardware) -> tuple[MeasuredLink | None, str]:
    """Return the link that explains the collectives of most ranks, and what it is from."""
    names = hardware.device.reported_as
    here = [
        timing
        for timing in timings
        if not names or any(name in timing.environment.hardware for name in names)
    ]
    for kind in JOINING:
        known = [row for row in rows(here) if row.kind == kind and row.link is not None]
        if known:
            row = max(known, key=lambda row: row.ranks)
            assert row.link is not None
            link = MeasuredLink(bandwidth=row.link.bandwidth, latency=max(row.link.latency, 0.0))
            return link, f"{row.kind} of {row.ranks} ranks ({row.scenario})"
    return None, ""
