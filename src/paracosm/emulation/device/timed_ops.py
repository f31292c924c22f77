"""What a profile database knows of a recording's ops on the device that they were timed on.

On a CPU an op was timed twice: with its data in memory, and in the cache of its core. In a script
it finds some of it there; how much follows from what was in use since it was (`surroundings.py`).
Beside its ops a script on a CPU takes what the host takes, measured by itself
(`profiling/host_ops.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paracosm.cluster.hardware import Hardware
from paracosm.emulation.device.recording import (
    OP,
    Context,
    Recording,
    iterations_of,
    reuse_bytes,
)
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, Graph
from paracosm.profiling.durations import environment_of, find_durations, work_of
from paracosm.profiling.environment import Environment
from paracosm.profiling.host_ops import FORWARD, KIND, OPTIMIZER
from paracosm.profiling.samples import LinkTiming

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate


@dataclass(frozen=True)
class HostTimes:
    """Seconds of the host for each op that is recorded."""

    op: float
    in_optimizer: float


@dataclass(frozen=True, eq=False)
class TimedOps:
    """Durations of the distinct ops of a recording."""

    environment: Environment
    durations: list[Estimate | None]  # of each; None where the database knows nothing of it
    common: float  # relative error that all share
    host: HostTimes | None  # as measured; None where it was not


def timed_ops(recording: Recording, graph: Graph, hardware: Hardware, path: Path) -> TimedOps:
    """Look up or estimate the ops of a recording by what was timed on this hardware.

    Ops of types that were never timed are left out.

    Raises:
        InputError: the database cannot be used, or has no timings of this hardware.
    """
    environment = environment_of(path, hardware, strict=True)
    known = find_durations(graph, path, environment, cache="cold")
    durations = [
        None if duration is None or duration.source == "unknown" else duration
        for duration in known.durations
    ]
    if environment.device != "cpu":
        launch = None if known.launch is None else HostTimes(known.launch, known.launch)
        return TimedOps(environment, durations, known.common, launch)
    rows = _of_host(path, environment)
    context = recording.context
    if context is None:
        raise InputError(f"{path}: timings of a CPU, and the script was recorded on a GPU")
    near = find_durations(graph, path, environment, cache="warm").durations
    cache = rows[0].size
    for code, (far_time, near_time) in enumerate(zip(durations, near, strict=True)):
        if far_time is not None and near_time is not None:
            share = far_share(context, code, cache)
            seconds = min(near_time.duration, far_time.duration)
            seconds += share * (far_time.duration - seconds)
            durations[code] = _scaled(far_time, seconds / (far_time.duration or 1.0))
    host = _host_times(recording, context, {row.scenario: row.time.mean for row in rows})
    return TimedOps(environment, durations, known.common, host)


def exact_seconds(hardware: Hardware, path: Path) -> dict[tuple[str, str, int], float]:
    """Return the seconds of every op that was timed on this hardware, by its work."""
    from paracosm.profiling.database import ProfileDatabase

    environment = environment_of(path, hardware, strict=True)
    with ProfileDatabase.open(path, readonly=True) as database:
        timings = database.timings(environment, cache="cold")
    return {work_of(timing.op): timing.duration for timing in timings}


def far_share(context: Context, code: int, cache: int) -> float:
    """Return the share of what an op reads that its core's cache holds no more."""
    sizes = context.reuse.get(code, {})
    total = sum(sizes.values())
    if not total:
        return 0.0
    return sum(size for index, size in sizes.items() if reuse_bytes(index) > cache) / total


def _of_host(path: Path, environment: Environment) -> list[LinkTiming]:
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(path, readonly=True) as database:
        rows = [
            link
            for link in database.links()
            if link.kind == KIND and link.environment == environment
        ]
    if not rows:
        raise InputError(
            f"{path}: lacks what the host takes of an op on {environment.hardware}: paracosm "
            "profile ops --recording RUN there adds it"
        )
    latest: dict[str, LinkTiming] = {}
    for row in sorted(rows, key=lambda each: each.measured_at):
        latest[row.scenario] = row
    return list(latest.values())


def _host_times(recording: Recording, context: Context, seconds: Mapping[str, float]) -> HostTimes:
    """Give ops that only the host sees to those that are recorded, in their part of the step."""
    iteration = iterations_of(recording)[-1]
    inside = iteration.phase[iteration.kind == OP] == PHASES.index("optimizer")
    counts = int(np.sum(~inside)), int(np.sum(inside))
    times = [
        seconds[part] * (1 + of_host / count if count else 0.0)
        for part, of_host, count in zip((FORWARD, OPTIMIZER), context.of_host, counts, strict=True)
    ]
    return HostTimes(*times)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return replace(
        estimate,
        duration=estimate.duration * factor,
        low=estimate.low * factor,
        high=estimate.high * factor,
    )
