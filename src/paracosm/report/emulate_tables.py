"""Tables of an emulated job: collectives by kind, groups, real ranks, delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paracosm.report.view import Table
from paracosm.results import EmulationSummary
from paracosm.units import format_duration, format_size

__all__ = ["emulate_tables"]

ROWS = 16  # groups or ranks in a table


def emulate_tables(summary: EmulationSummary) -> list[Table]:
    """Return every table that the summary has rows for."""
    found = [
        _collectives(summary),
        _changes(summary),
        _delays(summary.delays or ()),
        _ranks(summary.ranks or ()),
        _groups(summary.groups or ()),
    ]
    return [table for table in found if table.rows]


def _collectives(summary: EmulationSummary) -> Table:
    """Return a row for each kind, per iteration where there are iterations; one for all kinds."""
    kinds = dict(summary.collectives or {})
    if len(kinds) > 1:
        kinds["all"] = summary.all_collectives
    per_iteration = any(each["per_iteration"] for each in kinds.values())
    rows = []
    for kind, whole in kinds.items():
        each = whole["per_iteration"] if per_iteration else whole
        seldom = not each["count"] and not each["time"]  # at the start, or in the end
        numbers = (
            _count(each["count"]),
            format_size(each["bytes"]),
            *(format_duration(each[part]) for part in ("time", "exposed", "hidden")),
        )
        row = (kind, *("" if seldom else text for text in numbers))
        rows.append((*row, format_duration(whole["duration"]), _count(whole["count"])))
    header = ("kind", "count", "bytes", "time", "exposed", "hidden", "each takes", "in all")
    if per_iteration:
        return Table("Collectives of an iteration", header, tuple(rows))
    return Table("Collectives", header[:-1], tuple(row[:-1] for row in rows))


def _count(count: float) -> str:
    """Return a mean number, of which a whole one has no decimals."""
    return f"{count:,.4g}" if count < 1000 else f"{count:,.0f}"


def _delays(delays: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each delay: the numbers of figure 4."""
    header = ("delay", "iteration", "10 %", "90 %", "exposed")
    rows = []
    for each in delays:
        time, parts = each["iteration_time"], each.get("breakdown") or {}
        exposed = parts.get("exposed_communication")
        texts = (
            ("failed" if each["status"] == "failed" else "", "", "")
            if time is None
            else tuple(format_duration(time[key]) for key in ("median", "p10", "p90"))
        )
        exposed_text = "" if exposed is None else format_duration(exposed)
        rows.append((format_duration(each["delay"]), *texts, exposed_text))
    return Table("Added delay", header, tuple(rows))


def _changes(summary: EmulationSummary) -> Table:
    """Return where an iteration goes with the changes and without them."""
    header = ("what if", "iteration", "10 %", "90 %", "computing", "exposed")
    runs = {"unchanged": summary.unchanged, "; ".join(summary.what_if or ()): summary}
    rows = []
    for what, run in runs.items():
        if run is None or not what or run.iteration_time is None:
            continue
        parts, time = run.breakdown or {}, run.iteration_time
        seconds = [time.median, time.p10, time.p90]
        seconds += [parts["compute"], parts["exposed_communication"]]
        rows.append((what, *map(format_duration, seconds)))
    return Table("With and without the changes", header, tuple(rows) if len(rows) > 1 else ())


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    header = ("rank", "iteration", "compute", "exposed", "processor use", "peak memory")
    rows = []
    for each in ranks[:ROWS]:
        time, parts = each["iteration_time"], each["breakdown"] or {}
        cpu, memory = each["utilisation"]["cpu"], each["peak_memory"]
        times = (None if time is None else time["median"], parts.get("compute"))
        seconds = [*times, parts.get("exposed_communication")]
        rows.append(
            (
                str(each["rank"]),
                *("" if value is None else format_duration(value) for value in seconds),
                "" if cpu is None else f"{cpu:.0%}",
                "" if memory is None else format_size(memory),
            )
        )
    return Table("Real ranks", header, _with_others(rows, len(ranks), header))


def _groups(groups: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each process group; nothing for a single one."""
    if len(groups) < 2:
        return Table("Process groups", (), ())
    used = sorted(groups, key=lambda each: -each["bytes"])
    header = ("group", "size", "backend", "collectives", "bytes")
    rows = [
        (
            each["name"],
            f"{each['size']:,}",
            each["backend"],
            f"{each['collectives']:,}",
            format_size(each["bytes"]),
        )
        for each in used[:ROWS]
    ]
    return Table("Process groups", header, _with_others(rows, len(groups), header))


def _with_others(
    rows: Sequence[tuple[str, ...]], count: int, header: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    if count <= len(rows):
        return tuple(rows)
    return (*rows, (f"{count - len(rows):,} others", *("" for _ in header[1:])))
