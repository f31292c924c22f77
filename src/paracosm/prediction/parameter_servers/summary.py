"""The key figures of throughput against workers, by the names that `summary.json` uses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.arrays import Floats
from paracosm.cluster import Cluster
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.description import describe_cluster
from paracosm.prediction.parameter_servers.coarse_models import Phases, cynthia, lin
from paracosm.prediction.parameter_servers.config import Settings
from paracosm.prediction.parameter_servers.synchronized import Band
from paracosm.prediction.parameter_servers.throughput import (
    NOTHING,
    Throughput,
    limiting,
    saturates_at,
)
from paracosm.profiling.jobs import JobProfile
from paracosm.results import ThroughputRow, ThroughputSummary
from paracosm.results.summaries import AfterStart, Saturation


@dataclass(frozen=True)
class Point:
    """A throughput, what it is between, and its growth were a resource twice as fast, by name."""

    throughput: Throughput
    band: Band | None
    gains: Mapping[str, float]


def summarise_throughput(
    points: Sequence[Point],
    profile: JobProfile,
    settings: Settings,
    alone: Floats,
    phases: Phases,
    *,
    status: str,
    profile_file: str,
    cluster: Cluster,
) -> ThroughputSummary:
    """`alone` is steps/s of each worker with the servers to itself, `phases` are of one worker.

    `cluster` has at least the most workers.
    """
    rows = [_row(point, profile.batch, alone, cluster) for point in points]
    rates = {point.throughput.workers: point.throughput.steps_per_second for point in points}
    at = saturates_at(rates, float(alone.mean()))
    saturated = next((row for row in rows if row.workers == at), None)
    last = rows[-1]
    return ThroughputSummary(
        status=status,
        profile=profile_file,
        workers=last.workers,
        servers=len(settings.ports.server),
        batch=profile.batch,
        steps_per_second=points[-1].throughput.steps_per_second,
        spread=last.spread,
        examples_per_second=last.examples_per_second,
        throughput=rows,
        baselines=_baselines(phases, settings, tuple(rates), profile.batch),
        saturation=None
        if saturated is None
        else Saturation(workers=saturated.workers, because=str(saturated.bottleneck)),
        bottleneck=_sentence(points, rows, saturated),
        job_profile={"steps": profile.steps, "ops": profile.ops, "dropped": dict(profile.dropped)},
        target=_target(settings),
        cluster=describe_cluster(first_workers(cluster, rows[-1].workers)),
    )


def _row(point: Point, batch: int | None, alone: Floats, cluster: Cluster) -> ThroughputRow:
    throughput = point.throughput
    # Both are means of drawn steps: nothing is beyond ideal.
    ideal = max(float(alone[: throughput.workers].sum()), throughput.steps_per_second)
    busy = {name: float(shares.max()) for name, shares in throughput.utilisation.items()}
    after = throughput.after_start
    return ThroughputRow(
        workers=throughput.workers,
        steps_per_second=throughput.steps_per_second,
        examples_per_second=_examples(throughput.steps_per_second, batch),
        ideal=ideal,
        efficiency=throughput.steps_per_second / ideal,
        bottleneck=limiting(point.gains, busy),
        standard_error=throughput.error,
        spread=throughput.spread,
        measure=throughput.seconds,
        after_start=None
        if after is None
        else AfterStart(
            steps_per_second=after.steps_per_second,
            examples_per_second=_examples(after.steps_per_second, batch),
            spread=after.spread,
        ),
        in_step=band.synchronized if (band := point.band) else None,
        apart=band.spread if band else None,
        drift=band.drift if band else None,
        if_twice_as_fast=dict(point.gains),
        utilisation=busy,
        utilisation_by_server={
            name: shares.tolist()
            for name, shares in throughput.utilisation.items()
            if name != "worker"
        },
        energy=_energy(point, first_workers(cluster, throughput.workers)),
    )


def _energy(point: Point, cluster: Cluster) -> float | None:
    """Return joules a step: of a second, in which workers are as busy as they are in the mean."""
    throughput = point.throughput
    busy = dict.fromkeys(cluster.workers, float(throughput.utilisation["worker"][0]))
    busy |= dict(zip(cluster.servers, throughput.utilisation["server"].tolist(), strict=True))
    joules = cluster.energy(1.0, busy)
    return None if joules is None else joules / throughput.steps_per_second


def _examples(steps: float, batch: int | None) -> float | None:
    return None if batch is None else steps * batch


def _baselines(
    phases: Phases, settings: Settings, numbers: Sequence[int], batch: int | None
) -> dict[str, list[ThroughputRow]]:
    of_lin = lin(phases, numbers[-1])
    bandwidth = float(settings.ports.server[0])
    models: dict[str, Callable[[int], float]] = {
        "lin": lambda workers: float(of_lin[workers - 1]),
        "cynthia": lambda workers: cynthia(phases, bandwidth, workers),
        "cynthia_half": lambda workers: cynthia(phases, bandwidth, workers, duplex=True),
    }
    return {
        name: [
            ThroughputRow(
                workers=workers,
                steps_per_second=model(workers),
                examples_per_second=_examples(model(workers), batch),
            )
            for workers in numbers
        ]
        for name, model in models.items()
    }


def _sentence(
    points: Sequence[Point], rows: Sequence[ThroughputRow], saturated: ThroughputRow | None
) -> str:
    """State where throughput saturates and why, or what limits the largest number."""
    if saturated is not None:
        point = next(point for point in points if point.throughput.workers == saturated.workers)
        more = max(row.steps_per_second or 0.0 for row in rows if row.workers > saturated.workers)
        gain = max(0.0, more / (saturated.steps_per_second or 1.0) - 1)
        return (
            f"Saturates at {saturated.workers:,} workers: {_limit(point, saturated)}. Up to "
            f"{rows[-1].workers:,} bring {gain:.0%} more."
        )
    workers, limit = rows[-1].workers, _limit(points[-1], rows[-1])
    if len(rows) == 1:
        return f"With {workers:,} worker{'s' if workers > 1 else ''}, {limit}."
    return f"Throughput grows up to the largest number of workers; there, {limit}."


def _limit(point: Point, row: ThroughputRow) -> str:
    name = str(row.bottleneck)
    gain, busy = point.gains[name], float(point.throughput.utilisation[name].max())
    if gain <= NOTHING:
        return (
            f"the {_WORDS[name]} is busiest, {busy:.0%} of the time, and no single resource twice "
            "as fast would gain more than 1%"
        )
    return (
        f"the {_WORDS[name]} would gain most if faster (twice as fast: {gain:+.0%}), busy "
        f"{busy:.0%} of the time"
    )


_WORDS = {
    "downlink": "downlink of the servers",
    "uplink": "uplink to the servers",
    "worker": "computing of the workers",
    "server": "computing of the servers",
}


def _target(settings: Settings) -> dict[str, Any]:
    return {
        "bandwidth": float(settings.ports.server.min()),
        "sharing": str(settings.ports.routes.sharing),
        "latency": float(settings.ports.latency.max()),
        "held": float(settings.ports.routes.held.max()),
        "alpha": settings.alpha,
        "beta": settings.beta,
        "window": settings.window if np.isfinite(settings.window) else None,
        "order": settings.order if isinstance(settings.order, str) else list(settings.order),
        "uneven": settings.share_sigma,
        "cores": settings.cores,
        "synchronous": settings.backup is not None,
        "backup": settings.backup,
        "start": settings.start,
    }
