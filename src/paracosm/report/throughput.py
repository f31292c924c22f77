"""Texts on throughput by number of workers, of jobs and from job profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from paracosm.report.timeline_charts import PARTS, group_label, shown_parts
from paracosm.results import JobSummary, Summary, ThroughputRow, ThroughputSummary
from paracosm.results.view import Figure, Table, figure
from paracosm.units import format_bandwidth, format_duration, format_size

RESOURCES = ("downlink", "worker", "uplink", "server")

MODELS: Mapping[str, str] = {
    "lin": "Lin et al.",
    "cynthia": "Cynthia",
    "cynthia_half": "Cynthia, half T_C",
}
"""Coarse models to compare with the prediction, by their names in the summary."""


def _spread(summary: Summary) -> str | None:
    spread = summary.spread if isinstance(summary, ThroughputSummary) else None
    return None if spread is None else f"± {spread:.2g} steps/s"


def _saturation_figure(summary: Summary) -> str | None:
    if not isinstance(summary, ThroughputSummary) or len(summary.throughput) < 2:
        return None
    found = summary.saturation
    if found is None:
        return "not yet"
    row = next(row for row in summary.throughput if row.workers == found.workers)
    return f"{found.workers:,} workers, {_rate(row.steps_per_second)} steps/s ({found.because})"


def _of_profile(key: str, form: str) -> Figure:
    write = figure(key, form.format)
    return lambda summary: write(summary) if isinstance(summary, ThroughputSummary) else None


THROUGHPUT_FIGURES: Mapping[str, Figure] = {
    "Servers": _of_profile("servers", "{:,}"),
    "Steps/s": _of_profile("steps_per_second", "{:.4g}"),
    "Spread": _spread,
    "Saturates at": _saturation_figure,
}


def throughput_name(known: Mapping[str, Any]) -> str | None:
    """Name a run by its profile and number of workers; None without a profile."""
    if (profile := known.get("profile")) is None:
        return None
    workers = known.get("workers")
    path = PurePath(str(profile))
    # Packed profiles all have the same file name: use that of their folder.
    name = path.parent.name or path.name if path.name == "profile.json.gz" else path.name
    return f"{name}, {workers:,} workers" if isinstance(workers, int) else name


def throughput_remarks(summary: ThroughputSummary) -> dict[str, str]:
    """Return remarks on assumptions, the profile, and coarse models."""
    return {
        f"coarse models, {summary.workers:,} workers": _models_text(summary),
        "target": _target(summary.target),
        "profiled": _profiled(summary.job_profile),
    }


def throughput_tables(summary: ThroughputSummary) -> list[Table]:
    """Return throughput, coarse models and limits by number of workers."""
    return [_rates_table(summary), _limits(summary.throughput)]


def _rates_table(summary: ThroughputSummary) -> Table:
    rows = summary.throughput
    examples = any(row.examples_per_second is not None for row in rows)
    started = any(row.after_start is not None for row in rows)
    has_band = any(row.in_step is not None for row in rows)
    header = (
        *("workers", "steps/s", "spread"),
        *(["examples/s"] if examples else []),
        *(["after start", "its spread"] if started else []),
        *(["in step", "apart", "lead/step"] if has_band else []),
        *("efficiency", "bottleneck", *(f"{MODELS[key]} (steps/s)" for key in SHOWN)),
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
                *(_after_start_cells(row) if started else []),
                *(_band_cells(row) if has_band else []),
                f"{row.efficiency:.1%}",
                str(row.bottleneck),
                *(_rate(model[row.workers].steps_per_second) for model in models),
            )
            for row in rows
        ),
    )


SHOWN = ("lin", "cynthia")  # coarse models in the table


def _limits(rows: Sequence[ThroughputRow]) -> Table:
    return Table(
        "Busy / if twice as fast",
        ("workers", *RESOURCES),
        tuple(
            (f"{row.workers:,}", *(f"{busy[name]:.0%} / {gains[name]:+.0%}" for name in RESOURCES))
            for row in rows
            for busy, gains in [(row.utilisation or {}, row.if_twice_as_fast or {})]
        ),
    )


def _models_text(summary: ThroughputSummary) -> str:
    return ", ".join(
        f"{name} {_rate(summary.baselines[key][-1].steps_per_second)} steps/s"
        for key, name in MODELS.items()
    )


def _target(found: Mapping[str, Any]) -> str:
    window = found["window"]
    parts = [
        f"links of {format_bandwidth(found['bandwidth'])}",
        f"latency {format_duration(found['latency'])}" if found["latency"] else "",
        "whole streams, one at a time"
        if window is None
        else f"streams that take turns after {format_size(window)}",
        f"order {found['order']}" if isinstance(found["order"], str) else "a user-defined order",
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


def _after_start_cells(row: ThroughputRow) -> list[str]:
    after = row.after_start
    return [_rate(after.steps_per_second), f"{after.spread:.2g}"] if after else ["", ""]


def _band_cells(row: ThroughputRow) -> list[str]:
    drift = "" if row.drift is None else f"{row.drift * 1e3:+.3g} ms"
    return [_rate(row.in_step), _rate(row.apart), drift]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 1000 else f"{rate:.4g}"


RANK_ROWS = 16  # kinds of ranks in a table


def job_tables(summary: JobSummary) -> list[Table]:
    """Return the tables of a job on a cluster."""
    rows, ranks = summary.throughput, summary.breakdown["ranks"]
    scaling = [_scaling(rows)] if len(rows) > 1 else []
    return scaling + ([_ranks(ranks)] if ranks else [])


def _scaling(rows: Sequence[ThroughputRow]) -> Table:
    header = ("workers", "iteration", "examples/s", "ideal", "efficiency", "exposed", "waiting")
    return Table(
        "Scaling",
        (*header, "bubble") if _any(rows, "bubble") else header,
        tuple(
            (
                f"{row.workers:,}",
                format_duration(row.iteration_time or 0.0),
                _few_digits(row.examples_per_second),
                _few_digits(ideal_examples(row)),
                "" if row.efficiency is None else f"{row.efficiency:.1%}",
                _share(row, "exposed_communication"),
                _share(row, "waiting"),
                *([_share(row, "bubble")] if _any(rows, "bubble") else []),
            )
            for row in rows
        ),
    )


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    parts = shown_parts(ranks)
    shown = ranks if len(ranks) <= RANK_ROWS else ranks[: RANK_ROWS - 1]
    rows = [
        (
            group_label(each),
            *(format_duration(each[part]) for part in parts),
            "" if each["peak_memory"] is None else format_size(each["peak_memory"]),
        )
        for each in shown
    ]
    if len(shown) < len(ranks):
        others = sum(each["ranks"] for each in ranks[len(shown) :])
        rows.append((f"{others:,} other ranks", *("" for _ in (*parts, "memory"))))
    header = ("rank", *(PARTS[part][0] for part in parts), "peak memory")
    return Table("Time by rank", header, tuple(rows))


def ideal_examples(row: ThroughputRow) -> float | None:
    """Return the ideal examples per second of a row."""
    if row.examples_per_second is None or not row.efficiency:
        return None
    return row.examples_per_second / row.efficiency


def _any(rows: Sequence[ThroughputRow], part: str) -> bool:
    return any((row.breakdown or {})[part] > 0 for row in rows)


def _share(row: ThroughputRow, part: str) -> str:
    return f"{(row.breakdown or {})[part] / (row.iteration_time or 1.0):.1%}"


def _few_digits(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"
