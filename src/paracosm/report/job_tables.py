"""Tables of a predicted job: by number of workers, and rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paracosm.report.part_bars import PARTS, ranks_alike, shown_parts
from paracosm.report.view import Table
from paracosm.results import JobSummary, ThroughputRow
from paracosm.units import format_duration, format_size

__all__ = ["ideal_examples", "job_tables"]

ROWS = 16  # kinds of ranks in a table


def job_tables(summary: JobSummary) -> list[Table]:
    """Return the tables of a job on a cluster."""
    rows, ranks = summary.throughput, summary.breakdown["ranks"]
    scaling = [_scaling(rows)] if len(rows) > 1 else []
    return scaling + ([_ranks(ranks)] if ranks else [])


def _scaling(rows: Sequence[ThroughputRow]) -> Table:
    """Return a row for each number of workers: the scaling curve, and the ideal beside it."""
    header = ("workers", "iteration", "examples/s", "ideal", "efficiency", "exposed", "waiting")
    return Table(
        "Scaling",
        (*header, "bubble") if _any(rows, "bubble") else header,
        tuple(
            (
                f"{row.workers:,}",
                format_duration(row.iteration_time or 0.0),
                _rate(row.examples_per_second),
                _rate(ideal_examples(row)),
                "" if row.efficiency is None else f"{row.efficiency:.1%}",
                _share(row, "exposed_communication"),
                _share(row, "waiting"),
                *([_share(row, "bubble")] if _any(rows, "bubble") else []),
            )
            for row in rows
        ),
    )


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each kind of ranks, with the parts of its iteration."""
    parts = shown_parts(ranks)
    shown = ranks if len(ranks) <= ROWS else ranks[: ROWS - 1]
    rows = [
        (
            ranks_alike(each),
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


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"
