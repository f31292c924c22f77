"""What is said of traces that were played again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from paracosm.report.figure import Ending, Figure, figure
from paracosm.report.table import Table
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.study.series import Series

RANKS = 16  # of a table: the summary has them all
PARTS = {
    "compute": "compute",
    "exposed_communication": "communication",
    "waiting": "waiting",
    "host": "host",
    "data_loading": "data loading",
}
ENDINGS: Mapping[str, Ending] = {}


def _replayed(summary: Mapping[str, Any]) -> str | None:
    replayed = summary.get("replayed") or {}
    if "iteration_time" not in replayed:
        return None
    return f"{format_duration(replayed['iteration_time'])} ({replayed['error']:+.2%})"


FIGURES: Mapping[str, Figure] = {
    "As traced": figure("iteration_time", format_duration),
    "Replayed": _replayed,
    "Ranks": figure("ranks", lambda ranks: f"{len(ranks):,}"),
    "Steps": figure("steps", lambda steps: f"{max(len(steps), 1):,}"),
    "Tasks": figure("tasks", "{:,}".format),
}


def subject(known: Mapping[str, Any]) -> str | None:
    """Say what was asked."""
    return "; ".join(known.get("what_if") or ()) or None


def name(known: Mapping[str, Any]) -> str | None:
    """Return nothing: the folder's name is the run's."""
    return None


def so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    """Return nothing: a replay has no metrics on its way."""
    return {}


def origins(summary: Mapping[str, Any]) -> dict[str, str]:
    """Say where each kind of duration comes from."""
    return dict(summary.get("durations") or {})


def remarks(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what limits the job, who holds it up, and what was done to the traces."""
    if not summary.get("replayed"):
        return {}
    last = _last(summary)
    moved = summary.get("clocks_moved") or {}
    lines = {
        "bottleneck": summary["replayed"]["bottleneck"],
        "straggler": _straggler(summary["replayed"]["straggler"]),
        "then": "" if last is summary["replayed"] else last["bottleneck"],
        "clocks": "; ".join(
            f"that of rank {rank} set by {format_duration(abs(seconds))}"
            for rank, seconds in moved.items()
        ),
    }
    return {what: line for what, line in lines.items() if line}


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """Return the iteration times of all what-ifs, and the parts of each rank's in the last one."""
    if not summary.get("replayed"):
        return []
    replayed, last = summary["replayed"], _last(summary)
    rows = [
        ("as traced", format_duration(summary["iteration_time"]), ""),
        ("replayed", format_duration(replayed["iteration_time"]), f"{replayed['error']:+.2%}"),
        *(_changed(replayed, each, each["what_if"]) for each in summary["what_ifs"]),
    ]
    if summary["together"] is not None:
        rows.append(_changed(replayed, summary["together"], "all together"))
    ranks = list(last["breakdown"].items())
    parts = [
        (f"rank {rank}", *(format_duration(times[part]) for part in PARTS))
        for rank, times in ranks[:RANKS]
    ]
    if len(ranks) > RANKS:
        parts.append((f"{len(ranks) - RANKS} more", *("" for _ in PARTS)))
    title = "all together" if last is summary["together"] else last["what_if"]
    return [
        Table("What if", ("what if", "iteration", "change"), tuple(rows)),
        Table(f"Ranks, {title}", ("rank", *PARTS.values()), tuple(parts)),
    ]


def _last(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what came of the most changes."""
    scenarios = [summary["replayed"], *summary["what_ifs"], summary["together"]]
    last: Mapping[str, Any] = next(each for each in reversed(scenarios) if each is not None)
    return last


def _changed(
    replayed: Mapping[str, Any], scenario: Mapping[str, Any], what: str
) -> tuple[str, str, str]:
    """Return a row: a what-if beside the replay of the unchanged job."""
    time, before = scenario["iteration_time"], replayed["iteration_time"]
    return what, format_duration(time), f"{time / before - 1:+.1%}" if before else ""


def _straggler(late: Mapping[str, Any] | None) -> str:
    if late is None:
        return ""
    return (
        f"Rank {late['rank']} comes last to {late['last']} of {late['collectives']} collectives, "
        f"{format_duration(late['lateness'])} after the others on the average."
    )
