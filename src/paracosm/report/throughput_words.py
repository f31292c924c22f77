"""What is said of throughput that was predicted from a job profile: figures, remarks, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from paracosm.report.view import Figure, Table, figure
from paracosm.results import Summary, ThroughputRow, ThroughputSummary
from paracosm.units import format_bandwidth, format_duration, format_size

__all__ = [
    "MODELS",
    "RESOURCES",
    "THROUGHPUT_FIGURES",
    "throughput_name",
    "throughput_remarks",
    "throughput_tables",
]

RESOURCES = ("downlink", "worker", "uplink", "server")

MODELS: Mapping[str, str] = {
    "lin": "Lin et al.",
    "cynthia": "Cynthia",
    "cynthia_half": "Cynthia, half T_C",
}
"""Coarse models that stand beside the prediction, by their names in the summary."""


def _spread(summary: Summary) -> str | None:
    spread = summary.spread if isinstance(summary, ThroughputSummary) else None
    return None if spread is None else f"± {spread:.2g} steps/s"


def _saturation(summary: Summary) -> str | None:
    if not isinstance(summary, ThroughputSummary) or len(summary.throughput) < 2:
        return None
    found = summary.saturation
    return "not yet" if found is None else f"{found.workers:,} workers ({found.because})"


def _of_profile(key: str, form: str) -> Figure:
    """Return a figure that only a prediction from a job profile has."""
    write = figure(key, form.format)
    return lambda summary: write(summary) if isinstance(summary, ThroughputSummary) else None


THROUGHPUT_FIGURES: Mapping[str, Figure] = {
    "Servers": _of_profile("servers", "{:,}"),
    "Steps/s": _of_profile("steps_per_second", "{:.4g}"),
    "Spread": _spread,
    "Saturates at": _saturation,
}


def throughput_name(known: Mapping[str, Any]) -> str | None:
    """Name a run by its profile and its workers; None where it has no profile."""
    if (profile := known.get("profile")) is None:
        return None
    workers = known.get("workers")
    path = PurePath(str(profile))
    # Profiles of the packed form all have one name: that of their folder tells them apart.
    name = path.parent.name or path.name if path.name == "profile.json.gz" else path.name
    return f"{name}, {workers:,} workers" if isinstance(workers, int) else name


def throughput_remarks(summary: ThroughputSummary) -> dict[str, str]:
    """Return what was assumed, what the profile is, and what coarse models say."""
    return {
        "coarse models": _models(summary),
        "imagined": _imagined(summary.imagined),
        "profiled": _profiled(summary.job_profile),
    }


def throughput_tables(summary: ThroughputSummary) -> list[Table]:
    """Return throughput beside coarse models, and what limits it, by number of workers."""
    return [_throughput(summary), _limits(summary.throughput)]


def _throughput(summary: ThroughputSummary) -> Table:
    rows = summary.throughput
    examples = any(row.examples_per_second is not None for row in rows)
    started = any(row.after_start is not None for row in rows)
    header = (
        *("workers", "steps/s", "spread"),
        *(["examples/s"] if examples else []),
        *(["after start", "its spread"] if started else []),
        *("efficiency", "bottleneck", *(name for key, name in MODELS.items() if key in SHOWN)),
    )
    models = [{each.workers: each for each in summary.baselines[key]} for key in SHOWN]
    return Table(
        "Throughput",
        header,
        tuple(
            (
                f"{row.workers:,}",
                _rate(row.steps_per_second),
                "" if row.spread is None else f"{row.spread:.2g}",
                *([_rate(row.examples_per_second)] if examples else []),
                *(_after_start(row) if started else []),
                f"{row.efficiency:.1%}",
                str(row.bottleneck),
                *(_rate(model[row.workers].steps_per_second) for model in models),
            )
            for row in rows
        ),
    )


SHOWN = ("lin", "cynthia")  # coarse models in the table


def _limits(rows: Sequence[ThroughputRow]) -> Table:
    """Return how busy resources are, and what they would bring if they were twice as fast."""
    return Table(
        "Busy / if twice as fast",
        ("workers", *RESOURCES),
        tuple(
            (f"{row.workers:,}", *(f"{busy[name]:.0%} / {gains[name]:+.0%}" for name in RESOURCES))
            for row in rows
            for busy, gains in [(row.utilisation or {}, row.if_twice_as_fast or {})]
        ),
    )


def _models(summary: ThroughputSummary) -> str:
    return ", ".join(
        f"{name} {_rate(summary.baselines[key][-1].steps_per_second)} steps/s"
        for key, name in MODELS.items()
    )


def _imagined(found: Mapping[str, Any]) -> str:
    """Return the assumptions that a user may want to change."""
    window = found["window"]
    parts = [
        f"links of {format_bandwidth(found['bandwidth'])}",
        f"latency {format_duration(found['latency'])}" if found["latency"] else "",
        "streams sent as a whole"
        if window is None
        else f"streams that take turns after {format_size(window)}",
        f"order {found['order']}" if isinstance(found["order"], str) else "an order of one's own",
        f"parsing {found['alpha'] * 1e9:.3g} ns/byte + {format_duration(found['beta'])}"
        if found["alpha"] or found["beta"]
        else "",
        f"{found['cores']:,} cores of each server" if found["cores"] else "",
        _waiting(found),
    ]
    return ", ".join(part for part in parts if part)


def _waiting(found: Mapping[str, Any]) -> str:
    if not found["synchronous"]:
        return "asynchronous"
    return f"synchronous, {found['backup']:,} backup" if found["backup"] else "synchronous"


def _profiled(found: Mapping[str, Any]) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in found["dropped"].items())
    steps = f"{found['steps']:,} steps of {found['ops']:,} ops"
    return f"{steps}; left out: {dropped}" if dropped else steps


def _after_start(row: ThroughputRow) -> list[str]:
    after = row.after_start
    return [_rate(after.steps_per_second), f"{after.spread:.2g}"] if after else ["", ""]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 1000 else f"{rate:.4g}"
