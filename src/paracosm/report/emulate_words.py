"""Texts on an emulated job: key figures, remarks, tables."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.cluster.description import cluster_text
from paracosm.report.answers import exposed_share
from paracosm.report.chart import overview_of
from paracosm.report.emulate import sections
from paracosm.report.sweep_charts import Quantity, side_by_side
from paracosm.report.sweeps import best_sentence
from paracosm.results import EmulationSummary
from paracosm.results.view import Figure, Table, View, figure, joined
from paracosm.units import format_between, format_duration, format_size

if TYPE_CHECKING:
    from paracosm.results.metrics import Series


NOTES = 8  # of a run that has many


def _iteration_time(summary: EmulationSummary) -> str | None:
    time = summary.iteration_time
    if not time:
        return None
    median, spread = format_between(time.p10, time.median, time.p90, format_duration)
    return f"{median} ({spread})"


def _part(summary: EmulationSummary, part: str) -> str | None:
    breakdown = summary.breakdown
    if not breakdown:
        return None
    parts = ("compute", "exposed_communication", "waiting")
    whole = sum(breakdown[each] for each in parts) or 1.0
    return f"{format_duration(breakdown[part])} ({breakdown[part] / whole:.1%})"


def _handling(summary: EmulationSummary) -> str | None:
    """Return the time in waits after results arrive: DDP copies them into gradients."""
    breakdown = summary.breakdown
    return _part(summary, "waiting") if breakdown and breakdown["waiting"] > 0 else None


def _hidden(summary: EmulationSummary) -> str | None:
    found = (summary.all_collectives or {}).get("per_iteration")
    if not found or not found["time"]:
        return None
    return f"{format_duration(found['hidden'])} ({found['hidden'] / found['time']:.1%} of it)"


def _knee(summary: EmulationSummary) -> str | None:
    knee = summary.knee
    if not knee:
        return None
    return "none" if knee["knee"] is None else format_duration(float(f"{knee['knee']:.3g}"))


def _predicted(summary: EmulationSummary) -> str | None:
    time, beside = summary.iteration_time, summary.beside
    if not time or not beside or beside.get("iteration_time") is None:
        return None
    predicted = beside["iteration_time"]
    return f"{format_duration(predicted)} ({predicted / time.median - 1:+.1%})"


def _unchanged(summary: EmulationSummary) -> str | None:
    text = None if summary.unchanged is None else _iteration_time(summary.unchanged)
    ratio = summary.ratio
    return text if text is None or ratio is None else f"{text}; {ratio:.3f} times with the changes"


FIGURES: Mapping[str, Figure] = {
    "World size": figure("world_size", "{:,}".format),
    "Mode": figure("mode", str),
    "Iterations": figure("iterations", "{:,}".format),
    "Iteration time": _iteration_time,
    "Unchanged": _unchanged,
    "Predicted": _predicted,
    "Computing": lambda summary: _part(summary, "compute"),
    "Exposed communication": lambda summary: _part(summary, "exposed_communication"),
    "Handling results": _handling,
    "Hidden communication": _hidden,
    "Delay that hides": _knee,
    "Processor use": lambda summary: figure("cpu", "{:.0%}".format)(summary.utilisation or {}),
    "Peak memory": figure("peak_memory", format_size),
    "Wall time": figure("wall_time", format_duration),
}


def _subject(known: Mapping[str, Any]) -> str | None:
    world, rank, mode = known.get("world_size"), known.get("rank"), known.get("mode")
    if not isinstance(world, int) or rank is None or mode is None:
        return None
    ranks = list(rank) if isinstance(rank, list | tuple) else [rank]
    several = "s" if len(ranks) > 1 else ""
    return f"rank{several} {', '.join(map(str, ranks))} of {world:,}, mode {mode}"


def _name(known: Mapping[str, Any]) -> str | None:
    if (script := known.get("script")) is None:
        return None
    parts = [PurePath(str(script)).name]
    if isinstance(world := known.get("world_size"), int):
        parts.append(f"{world:,} rank{'' if world == 1 else 's'}")
    return ", ".join(filter(None, [*parts, joined(known.get("what_if"))]))


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    times = series("iteration_time")
    if not len(times):
        return {}
    found: dict[str, Any] = {
        "iterations": int(times.step.max()) + 1,
        "wall_time": float(times.wall_time.max()),
    }
    measured = times.value[times.step > 0]
    if len(measured):
        p10, median, p90 = np.quantile(measured, [0.1, 0.5, 0.9]).tolist()
        found["iteration_time"] = {"median": median, "p10": p10, "p90": p90}
    return found


def _failed(summary: EmulationSummary) -> str:
    said = [note["text"] for note in summary.notes or () if note["grave"]]
    code = summary.exit_code
    if code is not None and code < 0:
        known = {int(each): each.name for each in signal.Signals}
        said.append(f"the script was killed by {known.get(-code, f'signal {-code}')}")
    elif code:
        said.append(f"the script ended with exit code {code}")
    return f"The run failed: {'; '.join(said) or 'the cause is unknown'}."


def _noisy(summary: EmulationSummary) -> str:
    return f"The numbers are noisy: {'; '.join(summary.noise)}. Rerun it on an idle machine."


def _remarks(summary: EmulationSummary) -> dict[str, str]:
    knee = summary.knee or {}
    lines = {
        "iteration time": summary.no_iteration_time or "",
        "measured": _measured(summary.iteration_time or {}),
        "waiting for others": _late_peers(summary.breakdown or {}),
        "added delay": str(knee.get("sentence") or knee.get("reason") or ""),
        "cluster": cluster_text(summary.cluster or {}),
        "prediction": str((summary.beside or {}).get("run") or ""),
        "lateness": _lateness(summary.lateness or {}),
        "emulator": _emulator(summary.emulator or {}),
        **_notes(summary),
    }
    return {what: line for what, line in lines.items() if line}


def _measured(time: Mapping[str, Any]) -> str:
    if (count := time.get("measured")) is None:
        return ""
    plural = "" if count == 1 else "s"
    return f"{count:,} iteration{plural} after the first, which holds the start-up"


def _late_peers(breakdown: Mapping[str, Any]) -> str:
    late = breakdown.get("late_peers") or 0.0
    exposed = breakdown.get("exposed_communication") or 0.0
    if late < 0.001 * exposed or not late:
        return ""
    return f"{format_duration(late)} of the exposed communication, until the last rank came"


def _lateness(late: Mapping[str, Any]) -> str:
    if not late:
        return ""
    median, p90 = (format_duration(float(f"{late[key]:.3g}")) for key in ("median", "p90"))
    return (
        f"the rank continued {median} after the last result of a wait was due (90 % within "
        f"{p90}), because of this machine and work of PyTorch"
    )


def _emulator(cost: Mapping[str, Any]) -> str:
    if not cost:
        return ""
    each = cost.get("cpu_per_MB")
    per_megabyte = "" if each is None else f", {format_duration(each)} per MB"
    moved = format_size(cost["sent"] + cost["received"])
    return (
        f"{format_duration(cost['cpu'])} of processor time for {moved} in "
        f"{cost['messages']:,} messages{per_megabyte}"
    )


def _notes(summary: EmulationSummary) -> dict[str, str]:
    """Return the notes that `_failed` leaves out, one per line."""
    notes = [note for note in summary.notes or () if not note["grave"]]
    several = len({note["rank"] for note in notes}) > 1
    lines = {}
    for number, note in enumerate(notes[:NOTES], start=1):
        who = "emulator" if note["rank"] < 0 else f"rank {note['rank']}"
        text = f"{who}: {note['text']}" if several else note["text"]
        lines[f"note {number}" if len(notes) > 1 else "note"] = text
    if len(notes) > NOTES:
        lines["more notes"] = f"{len(notes) - NOTES:,}, in summary.json"
    return lines


def _median(summary: EmulationSummary) -> float | None:
    return None if summary.iteration_time is None else summary.iteration_time.median


QUANTITIES = (
    Quantity("iteration_time", "Iteration time, median", _median, "s"),
    Quantity("exposed", "Exposed communication", exposed_share, "%"),
)

ROWS = 16  # groups or ranks in a table


def emulate_tables(summary: EmulationSummary) -> list[Table]:
    """Return the tables that are not empty."""
    found = [
        _collectives(summary),
        _changes(summary),
        _delays(summary.delays or ()),
        _ranks(summary.ranks or ()),
        _groups(summary.groups or ()),
    ]
    return [table for table in found if table.rows]


def _collectives(summary: EmulationSummary) -> Table:
    """Return a row per kind of collective and a total, per iteration if there are any."""
    kinds = dict(summary.collectives or {})
    if len(kinds) > 1:
        kinds["all"] = summary.all_collectives
    per_iteration = any(each["per_iteration"] for each in kinds.values())
    rows = []
    for kind, whole in kinds.items():
        each = whole["per_iteration"] if per_iteration else whole
        seldom = not each["count"] and not each["time"]  # at the start, or at the end
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


VIEW = View(
    figures=FIGURES,
    sections=sections,
    overview=lambda runs: overview_of(side_by_side(runs, QUANTITIES)),
    compare=lambda runs: best_sentence(
        *(runs, "An iteration is shortest with", _median, format_duration)
    ),
    subject=_subject,
    name=_name,
    so_far=_so_far,
    origins=lambda summary: dict(summary.modelled or {}),
    remarks=_remarks,
    tables=emulate_tables,
    endings={"failed": _failed, "noisy": _noisy},
)
