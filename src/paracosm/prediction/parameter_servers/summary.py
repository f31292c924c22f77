"""The key figures of throughput against workers, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.coarse_models import Phases, cynthia, lin
from paracosm.prediction.parameter_servers.settings import Settings
from paracosm.prediction.parameter_servers.throughput import (
    NOTHING,
    Throughput,
    limiting,
    saturates_at,
)
from paracosm.profiling.jobs import JobProfile

__all__ = ["Point", "summarise_throughput"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """What is said of one number of workers.

    Attributes:
        throughput: as simulated.
        gains: by how much it would grow if a resource were twice as fast, relative, by its name.
    """

    throughput: Throughput
    gains: Mapping[str, float]


def summarise_throughput(
    points: Sequence[Point],
    profile: JobProfile,
    settings: Settings,
    alone: Floats,
    phases: Phases,
) -> dict[str, Any]:
    """Return the summary of a job's throughput.

    Args:
        points: one for each number of workers, ascending; the summary is about the last one.
        profile: that it is predicted from.
        settings: what is imagined of it.
        alone: steps/s of each worker that has the servers to itself.
        phases: of one worker, which coarse models are fed with.
    """
    rows = {str(point.throughput.workers): _row(point, profile.batch, alone) for point in points}
    last = points[-1].throughput
    found = {point.throughput.workers: point.throughput.steps_per_second for point in points}
    at = saturates_at(found, float(alone.mean()))
    said = rows[str(last.workers)]
    return {
        "workers": last.workers,
        "servers": len(settings.ports.server),
        "batch": profile.batch,
        **{key: said[key] for key in ("steps_per_second", "spread", "examples_per_second")},
        "throughput": rows,
        "baselines": _baselines(phases, settings, tuple(found), profile.batch),
        "saturation": None
        if at is None
        else {"workers": at, "because": rows[str(at)]["bottleneck"]},
        "bottleneck": _sentence(said, at, rows),
        "job_profile": {
            "steps": profile.steps,
            "ops": profile.ops,
            "dropped": dict(profile.dropped),
        },
        "imagined": _imagined(settings),
    }


def _row(point: Point, batch: int | None, alone: Floats) -> dict[str, Any]:
    found = point.throughput
    ideal = float(alone[: found.workers].sum())
    busy = {name: float(shares.max()) for name, shares in found.utilisation.items()}
    after = found.after_start
    return {
        **_rates(found.steps_per_second, batch),
        "standard_error": found.error,
        "spread": found.spread,
        "measure": found.seconds,
        "after_start": None
        if after is None
        else {**_rates(after.steps_per_second, batch), "spread": after.spread},
        "ideal": ideal,
        "efficiency": found.steps_per_second / ideal,
        "bottleneck": limiting(point.gains, busy),
        "if_twice_as_fast": dict(point.gains),
        "utilisation": busy,
        "utilisation_by_server": {
            name: each.tolist() for name, each in found.utilisation.items() if name != "worker"
        },
    }


def _rates(steps: float, batch: int | None) -> dict[str, Any]:
    return {
        "steps_per_second": steps,
        "examples_per_second": None if batch is None else steps * batch,
    }


def _baselines(
    phases: Phases, settings: Settings, numbers: Sequence[int], batch: int | None
) -> dict[str, dict[str, Any]]:
    of_lin = lin(phases, numbers[-1])
    bandwidth = float(settings.ports.server[0])
    models: dict[str, Callable[[int], float]] = {
        "lin": lambda workers: float(of_lin[workers - 1]),
        "cynthia": lambda workers: cynthia(phases, bandwidth, workers),
        "cynthia_half": lambda workers: cynthia(phases, bandwidth, workers, duplex=True),
    }
    unsaid = {"spread": None, "bottleneck": None}  # the shape of our own rows
    return {
        name: {str(workers): _rates(model(workers), batch) | unsaid for workers in numbers}
        for name, model in models.items()
    }


def _sentence(said: Mapping[str, Any], at: int | None, rows: Mapping[str, Any]) -> str:
    """Return where throughput saturates and why, or what limits the largest number."""
    if at is not None:
        row = rows[str(at)]
        return (
            f"Saturates at {at:,} workers: {_limit(row)}. More of them bring less than a tenth of "
            "one alone, each."
        )
    if len(rows) == 1:
        workers = int(next(iter(rows)))
        return f"With {workers:,} worker{'s' if workers > 1 else ''}, {_limit(said)}."
    return f"Throughput grows up to the largest number of workers; there, {_limit(said)}."


def _limit(row: Mapping[str, Any]) -> str:
    name = row["bottleneck"]
    if row["if_twice_as_fast"][name] <= NOTHING:
        return (
            f"the {_WORDS[name]} is busiest, {row['utilisation'][name]:.0%} of the time, and no "
            "resource alone would bring more than 1% if twice as fast"
        )
    return (
        f"the {_WORDS[name]} would bring most if faster (twice as fast: "
        f"{row['if_twice_as_fast'][name]:+.0%}), busy {row['utilisation'][name]:.0%} of the time"
    )


_WORDS = {
    "downlink": "downlink of the servers",
    "uplink": "uplink to the servers",
    "worker": "computing of the workers",
    "server": "computing of the servers",
}


def _imagined(settings: Settings) -> dict[str, Any]:
    """Return what is assumed of the cluster, as far as a number says it."""
    return {
        "bandwidth": float(settings.ports.server.min()),
        "sharing": settings.ports.ways.sharing,
        "latency": float(settings.ports.latency.max()),
        "held": float(settings.ports.ways.held.max()),
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
