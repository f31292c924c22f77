"""What a page says of the throughput of workers with parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from paracosm.results import Summary, ThroughputRow, ThroughputSummary
from paracosm.results.view import Figure, Known, Table, counted, figure, percent, table
from paracosm.units import format_bandwidth, format_duration, format_energy, format_size

RESOURCES = ("downlink", "worker", "uplink", "server")
WIDE_BAND = 0.1  # relative difference between workers in step and apart that is worth reporting

MODELS: Mapping[str, str] = {
    "lin": "Lin et al.",
    "cynthia": "Cynthia",
    "cynthia_half": "Cynthia, half T_C",
}
"""Coarse models to compare with the prediction, by their names in the summary."""

SHOWN = ("lin", "cynthia")  # coarse models in the table


def sentence(summary: ThroughputSummary) -> str:
    """Say what workers with parameter servers make, and where more of them bring little."""
    joules = summary.throughput[-1].energy
    energy = "" if joules is None else f", {format_energy(joules)} a step"
    return (
        f"{counted(summary.workers, 'worker')} make {_rate_or_band(summary)}{energy}. "
        f"{summary.bottleneck}"
    )


def _rate_or_band(summary: ThroughputSummary) -> str:
    """State the steady steps/s, the rate after a requested start, or the band in step to apart."""
    row, start = summary.throughput[-1], summary.target.get("start")
    if row.after_start is not None:
        how = "a common" if start == "together" else "a staggered"
        return f"{row.after_start.steps_per_second:.4g} steps/s after {how} start"
    if row.in_step and row.apart and abs(row.apart / row.in_step - 1) > WIDE_BAND:
        return f"{row.in_step:.4g} (in step) to {row.apart:.4g} steps/s (apart)"
    share = "" if row.efficiency is None else f", {percent(row.efficiency)} of ideal"
    return f"{row.steps_per_second:.4g} steps/s{share}"


def _of_throughput(text: Callable[[ThroughputSummary], str | None]) -> Figure:
    """Return a figure that other predictions do not have."""

    def of(summary: Summary) -> str | None:
        return text(summary) if isinstance(summary, ThroughputSummary) else None

    return of


def _saturation(summary: ThroughputSummary) -> str | None:
    saturation = summary.saturation
    if len(summary.throughput) < 2:
        return None
    if saturation is None:
        return "not yet"
    row = next(row for row in summary.throughput if row.workers == saturation.workers)
    rate, because = _rate(row.steps_per_second), saturation.because
    return f"{saturation.workers:,} workers, {rate} steps/s ({because})"


FIGURES: Mapping[str, Figure] = {
    "Servers": _of_throughput(lambda summary: f"{summary.servers:,}"),
    "Steps/s": _of_throughput(lambda summary: f"{summary.steps_per_second:.4g}"),
    "Spread": _of_throughput(
        lambda summary: None if summary.spread is None else f"± {summary.spread:.2g} steps/s"
    ),
    "Saturates at": _of_throughput(_saturation),
}


def name(known: Known) -> str | None:
    """Name a run by its profile and number of workers; None without a profile."""
    if (profile := known.get("profile")) is None:
        return None
    workers = known.get("workers")
    path = PurePath(str(profile))
    # Packed profiles all have the same file name: use that of their folder.
    file = path.parent.name or path.name if path.name == "profile.json.gz" else path.name
    return f"{file}, {workers:,} workers" if isinstance(workers, int) else file


def remarks(summary: ThroughputSummary) -> dict[str, str]:
    """Return remarks on assumptions, the profile, and coarse models."""
    models = (
        f"{name} {_rate(summary.baselines[key][-1].steps_per_second)} steps/s"
        for key, name in MODELS.items()
    )
    profile = summary.job_profile
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in profile["dropped"].items())
    profiled = f"{profile['steps']:,} steps of {profile['ops']:,} ops"
    return {
        f"coarse models, {summary.workers:,} workers": ", ".join(models),
        "target": _target(summary.target),
        "profiled": f"{profiled}; left out: {dropped}" if dropped else profiled,
    }


def _target(target: Mapping[str, Any]) -> str:
    window = target["window"]
    waiting = "synchronous" if target["synchronous"] else "asynchronous"
    parts = [
        f"links of {format_bandwidth(target['bandwidth'])}",
        f"latency {format_duration(target['latency'])}" if target["latency"] else "",
        "whole streams, one at a time"
        if window is None
        else f"streams that take turns after {format_size(window)}",
        f"order {target['order']}" if isinstance(target["order"], str) else "a user-defined order",
        f"parsing {target['alpha'] * 1e9:.3g} ns/byte + {format_duration(target['beta'])}"
        if target["alpha"] or target["beta"]
        else "",
        f"{target['cores']:,} cores of each server" if target["cores"] else "",
        waiting,
        f"{target['backup']:,} backup" if target["synchronous"] and target["backup"] else "",
    ]
    return ", ".join(part for part in parts if part)


def tables(summary: ThroughputSummary) -> list[Table]:
    """Return throughput, coarse models and limits by number of workers."""

    def model(key: str) -> Figure:
        rates = {row.workers: row.steps_per_second for row in summary.baselines[key]}
        return lambda row: _rate(rates[row.workers])

    def busy(resource: str) -> Figure:
        def text(row: ThroughputRow) -> str:
            utilisation, gains = row.utilisation or {}, row.if_twice_as_fast or {}
            return f"{utilisation[resource]:.0%} / {gains[resource]:+.0%}"

        return text

    return [
        table(
            "Throughput",
            summary.throughput,
            {
                "workers": figure("workers", "n"),
                "steps/s": figure("steps_per_second", _rate),
                "spread": figure("spread", "{:.2g}".format),
                "examples/s": figure("examples_per_second", _rate),
                "after start": figure("after_start.steps_per_second", _rate),
                "its spread": figure("after_start.spread", "{:.2g}".format),
                "in step": figure("in_step", _rate),
                "apart": figure("apart", _rate),
                "lead/step": figure("drift", lambda drift: f"{drift * 1e3:+.3g} ms"),
                "efficiency": figure("efficiency", "%"),
                "bottleneck": figure("bottleneck"),
                **{f"{MODELS[key]} (steps/s)": model(key) for key in SHOWN},
            },
        ),
        table(
            "Busy / if twice as fast",
            summary.throughput,
            {"workers": figure("workers", "n"), **{name: busy(name) for name in RESOURCES}},
        ),
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 1000 else f"{rate:.4g}"
