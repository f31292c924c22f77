"""What is said of traces that were played again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paracosm.report.view import Figure, Table, View, figure
from paracosm.results import ReplaySummary
from paracosm.results.summaries import Scenario
from paracosm.units import format_duration

RANKS = 16  # of a table: the summary has them all
PARTS = {
    "compute": "compute",
    "exposed_communication": "communication",
    "waiting": "waiting",
    "host": "host",
    "data_loading": "data loading",
}


def _replayed(summary: ReplaySummary) -> str | None:
    replayed = summary.replayed
    if replayed is None:
        return None
    return f"{format_duration(replayed.iteration_time)} ({replayed.error:+.2%})"


FIGURES: Mapping[str, Figure] = {
    "As traced": figure("iteration_time", format_duration),
    "Replayed": _replayed,
    "Ranks": figure("ranks", lambda ranks: f"{len(ranks):,}"),
    "Steps": figure("steps", lambda steps: f"{max(len(steps), 1):,}"),
    "Tasks": figure("tasks", "{:,}".format),
}


def _subject(known: Mapping[str, Any]) -> str | None:
    """Say what was asked."""
    return "; ".join(known.get("what_if") or ()) or None


def _remarks(summary: ReplaySummary) -> dict[str, str]:
    """Return what limits the job, who holds it up, and what was done to the traces."""
    if summary.replayed is None:
        return {}
    last = _last(summary)
    lines = {
        "bottleneck": summary.replayed.bottleneck,
        "straggler": _straggler(summary.replayed.straggler),
        "then": "" if last is summary.replayed else last.bottleneck,
        "clocks": "; ".join(
            f"that of rank {rank} set by {format_duration(abs(seconds))}"
            for rank, seconds in (summary.clocks_moved or {}).items()
        ),
    }
    return {what: line for what, line in lines.items() if line}


def _tables(summary: ReplaySummary) -> list[Table]:
    """Return the iteration times of all what-ifs, and the parts of each rank's in the last one."""
    if summary.replayed is None:
        return []
    replayed, last = summary.replayed, _last(summary)
    rows = [
        ("as traced", format_duration(summary.iteration_time), ""),
        ("replayed", format_duration(replayed.iteration_time), f"{replayed.error:+.2%}"),
        *(_changed(replayed, each, each.what_if) for each in summary.what_ifs),
    ]
    if summary.together is not None:
        rows.append(_changed(replayed, summary.together, "all together"))
    ranks = list(last.breakdown.items())
    parts = [
        (f"rank {rank}", *(format_duration(times[part]) for part in PARTS))
        for rank, times in ranks[:RANKS]
    ]
    if len(ranks) > RANKS:
        parts.append((f"{len(ranks) - RANKS} more", *("" for _ in PARTS)))
    title = "all together" if last is summary.together else last.what_if
    return [
        Table("What if", ("what if", "iteration", "change"), tuple(rows)),
        Table(f"Ranks, {title}", ("rank", *PARTS.values()), tuple(parts)),
    ]


def _last(summary: ReplaySummary) -> Scenario:
    """Return what came of the most changes."""
    last = summary.together or [summary.replayed, *summary.what_ifs][-1]
    assert last is not None
    return last


def _changed(replayed: Scenario, scenario: Scenario, what: str) -> tuple[str, str, str]:
    """Return a row: a what-if beside the replay of the unchanged job."""
    time, before = scenario.iteration_time, replayed.iteration_time
    return what, format_duration(time), f"{time / before - 1:+.1%}" if before else ""


def _straggler(late: Mapping[str, Any] | None) -> str:
    if late is None:
        return ""
    return (
        f"Rank {late['rank']} comes last to {late['last']} of {late['collectives']} collectives, "
        f"{format_duration(late['lateness'])} after the others on the average."
    )


VIEW = View(figures=FIGURES, subject=_subject, remarks=_remarks, tables=_tables)
