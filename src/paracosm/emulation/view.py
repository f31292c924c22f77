"""What a page says of emulated jobs: the answer, key figures, remarks, tables."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.cluster.description import cluster_text
from paracosm.emulation.charts import sections
from paracosm.emulation.records import CPU_FOR_CUDA, RAN_AGAIN
from paracosm.results import EmulationSummary
from paracosm.results.comparison import best_sentence
from paracosm.results.view import (
    Figure,
    Known,
    Quantity,
    Table,
    Trials,
    View,
    assuming,
    counted,
    figure,
    joined,
    percent,
    short_duration,
    table,
    unless_failed,
)
from paracosm.units import format_between, format_duration, format_size

if TYPE_CHECKING:
    from paracosm.results.metrics import Series

NOTES = 8  # of a run that has many
ROWS = 16  # groups or ranks in a table


def sentence(summary: EmulationSummary) -> str:
    """Say how long an iteration takes, what of it is waiting for whom, and what links change."""
    time = summary.iteration_time
    world = f"In a world of {summary.world_size:,}"
    if time is None:
        why = summary.no_iteration_time or "no iteration was measured"
        return f"{world}, {why} ({summary.status})."
    text = f"{world}, an iteration takes {short_duration(time.median)}"
    if summary.unchanged is not None and summary.unchanged.iteration_time is not None:
        before = short_duration(summary.unchanged.iteration_time.median)
        text += f" with {'; '.join(summary.what_if or ())} instead of {before},"
    if any(note["text"] == CPU_FOR_CUDA for note in summary.notes or ()):
        text += " with this CPU's computing"
    text = text.removesuffix(",")
    if summary.efficiency is not None and summary.world_size > 1:
        text += (
            f", {percent(summary.efficiency)} of {summary.world_size:,} times one rank's throughput"
        )
    if (exposed := _exposed_share(summary)) is not None:
        collectives = (summary.collectives or {}).items()
        kinds = {kind: (times["per_iteration"] or times)["exposed"] for kind, times in collectives}
        most = max(kinds, key=lambda kind: kinds[kind], default="")
        of_most = f", most of it for {most.replace('_', '-')}" if kinds.get(most) else ""
        text += f": {percent(exposed)} of it waits for communication{of_most}"
    if summary.twice_bandwidth is not None:
        again = "" if summary.unchanged is None else " again"
        text += f"; with twice the bandwidth{again} {short_duration(summary.twice_bandwidth)}"
    free = (summary.modelled or {}).get("communication", "") == "assumed: takes no time"
    assumed = assuming(["links that take no time"] * free)
    return f"{text}." + (f" {assumed}" if assumed else "")


PARTS = ("compute", "exposed_communication", "waiting")


def _exposed_share(summary: EmulationSummary) -> float | None:
    """Return the share of an iteration that waits for communication; None if unknown."""
    parts = summary.breakdown or {}
    whole = sum(parts.get(part, 0.0) for part in PARTS)
    return parts["exposed_communication"] / whole if whole else None


def _iteration_time(summary: EmulationSummary) -> str | None:
    time = summary.iteration_time
    if not time:
        return None
    median, spread = format_between(time.p10, time.median, time.p90, format_duration)
    return f"{median} ({spread})"


def _part(part: str) -> Figure:
    def text(summary: EmulationSummary) -> str | None:
        breakdown = summary.breakdown
        if not breakdown:
            return None
        whole = sum(breakdown[name] for name in PARTS) or 1.0
        return f"{format_duration(breakdown[part])} ({breakdown[part] / whole:.1%})"

    return text


def _handling(summary: EmulationSummary) -> str | None:
    """Return the time in waits after results arrive: DDP copies them into gradients."""
    return _part("waiting")(summary) if (summary.breakdown or {}).get("waiting", 0.0) > 0 else None


def _hidden(summary: EmulationSummary) -> str | None:
    times = (summary.all_collectives or {}).get("per_iteration")
    if not times or not times["time"]:
        return None
    return f"{format_duration(times['hidden'])} ({times['hidden'] / times['time']:.1%} of it)"


def _knee(knee: Mapping[str, Any]) -> str:
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
    "World size": figure("world_size", "n"),
    "Mode": figure("mode"),
    "Iterations": figure("iterations", "n"),
    "Iteration time": _iteration_time,
    "Unchanged": _unchanged,
    "Efficiency": figure("efficiency", "%"),
    "Predicted": _predicted,
    "Computing": _part("compute"),
    "Exposed communication": _part("exposed_communication"),
    "Handling results": _handling,
    "Hidden communication": _hidden,
    "Delay that hides": figure("knee", _knee),
    "Processor use": figure("utilisation.cpu", "{:.0%}".format),
    "Peak memory": figure("peak_memory", "B"),
    "Wall time": figure("wall_time", "s"),
}


def _subject(known: Known) -> str | None:
    world, rank, mode = known.get("world_size"), known.get("rank"), known.get("mode")
    if not isinstance(world, int) or rank is None or mode is None:
        return None
    ranks = list(rank) if isinstance(rank, list | tuple) else [rank]
    several = "s" if len(ranks) > 1 else ""
    return f"rank{several} {', '.join(map(str, ranks))} of {world:,}, mode {mode}"


def _name(known: Known) -> str | None:
    if (script := known.get("script")) is None:
        return None
    parts = [PurePath(str(script)).name]
    if isinstance(world := known.get("world_size"), int):
        parts.append(counted(world, "rank"))
    return ", ".join(filter(None, [*parts, joined(known.get("what_if"))]))


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    times = series("iteration_time")
    if not len(times):
        return {}
    known: dict[str, Any] = {
        "iterations": int(times.step.max()) + 1,
        "wall_time": float(times.wall_time.max()),
    }
    measured = times.value[times.step > 0]
    if len(measured):
        p10, median, p90 = np.quantile(measured, [0.1, 0.5, 0.9]).tolist()
        known["iteration_time"] = {"median": median, "p10": p10, "p90": p90}
    return known


def _failed(summary: EmulationSummary) -> str:
    causes = [note["text"] for note in summary.notes or () if note["grave"]]
    code = summary.exit_code
    if code is not None and code < 0:
        names = {int(number): number.name for number in signal.Signals}
        causes.append(f"the script was killed by {names.get(-code, f'signal {-code}')}")
    elif code:
        causes.append(f"the script ended with exit code {code}")
    return f"The run failed: {'; '.join(causes) or 'the cause is unknown'}."


def _noisy(summary: EmulationSummary) -> str:
    return f"The numbers are noisy: {'; '.join(summary.noise)}. Rerun it on an idle machine."


def _remarks(summary: EmulationSummary) -> dict[str, str | None]:
    knee, time = summary.knee or {}, summary.iteration_time
    measured = None if time is None else time.get("measured")
    return {
        "iteration time": summary.no_iteration_time,
        "measured": None
        if measured is None
        else f"{counted(measured, 'iteration')} after the first, which holds the start-up",
        "waiting for others": _late_peers(summary.breakdown or {}),
        "added delay": knee.get("sentence") or knee.get("reason"),
        "cluster": cluster_text(summary.cluster or {}),
        "prediction": (summary.beside or {}).get("run"),
        "lateness": _lateness(summary.lateness or {}),
        "emulator": _emulator(summary.emulator or {}),
    }


def _late_peers(breakdown: Mapping[str, Any]) -> str | None:
    late = breakdown.get("late_peers") or 0.0
    if not late or late < 0.001 * (breakdown.get("exposed_communication") or 0.0):
        return None
    return f"{format_duration(late)} of the exposed communication, until the last rank came"


def _lateness(late: Mapping[str, Any]) -> str | None:
    if not late:
        return None
    median, p90 = (format_duration(float(f"{late[key]:.3g}")) for key in ("median", "p90"))
    return (
        f"the rank continued {median} after the last result of a wait was due (90 % within "
        f"{p90}), because of this machine and work of PyTorch"
    )


def _emulator(cost: Mapping[str, Any]) -> str | None:
    if not cost:
        return None
    seconds = cost.get("cpu_per_MB")
    per_megabyte = "" if seconds is None else f", {format_duration(seconds)} per MB"
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
        author = "emulator" if note["rank"] < 0 else f"rank {note['rank']}"
        text = f"{author}: {note['text']}" if several else note["text"]
        lines[f"note {number}" if len(notes) > 1 else "note"] = text
    if len(notes) > NOTES:
        lines["more notes"] = f"{len(notes) - NOTES:,}, in summary.json"
    return lines


def _median(summary: EmulationSummary) -> float | None:
    return None if summary.iteration_time is None else summary.iteration_time.median


QUANTITIES = (
    Quantity("iteration_time", "Iteration time, median", unless_failed(_median), "s"),
    Quantity("efficiency", "Efficiency", unless_failed(lambda summary: summary.efficiency), "%"),
    Quantity("exposed", "Exposed communication", unless_failed(_exposed_share), "%"),
)


def _compared(trials: Trials) -> str | None:
    """Say how efficient several worlds are, or what other runs' iterations are shortest with."""
    if list(trials.variables) != ["world_size"]:
        return best_sentence(trials, "An iteration is shortest with", _median, format_duration)
    runs = [trial.summary for trial in trials.runs if not trial.failure]
    known = {run.world_size: run.efficiency for run in runs if run.efficiency is not None}
    ends = dict.fromkeys((min(known), max(known))) if known else ()
    shares = [f"{percent(known[world])} of {world:,} times" for world in ends]
    notes = {run.world_size: note["text"] for run in runs for note in run.notes or ()}
    again = {world: text for world, text in notes.items() if text.startswith(RAN_AGAIN)}
    said = [f"Throughput is {' and '.join(shares)} one rank's."] if shares else []
    if again:
        worlds = joined([f"{world:,}" for world in sorted(again)])
        said.append(f"In worlds of {worlds}, {again[max(again)]}.")
    return " ".join(said) or None


Record = Mapping[str, Any]


def _time(*keys: str) -> Callable[[Record], str | None]:
    """Return the text of a time that records hold under such keys, one in the other."""
    return figure(".".join(keys), "s")


def tables(summary: EmulationSummary) -> list[Table]:
    """Return collectives, changes, delays, ranks and groups."""
    groups = sorted(summary.groups or (), key=lambda group: -group["bytes"])
    return [
        _collectives(summary),
        _changes(summary),
        table(
            "Added delay",
            summary.delays or (),
            {
                "delay": _time("delay"),
                "iteration": lambda delay: (
                    "failed"
                    if delay["status"] == "failed"
                    else _time("iteration_time", "median")(delay)
                ),
                "10 %": _time("iteration_time", "p10"),
                "90 %": _time("iteration_time", "p90"),
                "exposed": _time("breakdown", "exposed_communication"),
            },
        ),
        table(
            "Real ranks",
            summary.ranks or (),
            {
                "rank": lambda rank: str(rank["rank"]),
                "iteration": _time("iteration_time", "median"),
                "compute": _time("breakdown", "compute"),
                "exposed": _time("breakdown", "exposed_communication"),
                "processor use": figure("utilisation.cpu", "{:.0%}".format),
                "peak memory": figure("peak_memory", "B"),
            },
            ROWS,
        ),
        table(
            "Process groups",
            groups if len(groups) > 1 else (),
            {
                "group": figure("name"),
                "size": figure("size", "n"),
                "backend": figure("backend"),
                "collectives": figure("collectives", "n"),
                "bytes": figure("bytes", "B"),
            },
            ROWS,
        ),
    ]


def _collectives(summary: EmulationSummary) -> Table:
    """Return a row per kind of collective and a total, per iteration if there are any."""
    kinds = dict(summary.collectives or {})
    if len(kinds) > 1:
        kinds["all"] = summary.all_collectives
    per_iteration = any(times["per_iteration"] for times in kinds.values())
    title = "Collectives of an iteration" if per_iteration else "Collectives"

    def in_iteration(write: Callable[[Record], str | None]) -> Callable[[Any], str | None]:
        """Return the text of what an iteration has; none of what it seldom has: at the start, or at
        the end.
        """

        def text(row: tuple[str, Record]) -> str | None:
            times = row[1]["per_iteration"] if per_iteration else row[1]
            return write(times) if times["count"] or times["time"] else None

        return text

    return table(
        title,
        list(kinds.items()),
        {
            "kind": lambda row: row[0],
            "count": in_iteration(figure("count", _count)),
            "bytes": in_iteration(figure("bytes", "B")),
            "time": in_iteration(_time("time")),
            "exposed": in_iteration(_time("exposed")),
            "hidden": in_iteration(_time("hidden")),
            "each takes": lambda row: format_duration(row[1]["duration"]),
            "in all": lambda row: _count(row[1]["count"]) if per_iteration else None,
        },
    )


def _count(count: float) -> str:
    return f"{count:,.4g}" if count < 1000 else f"{count:,.0f}"


def _changes(summary: EmulationSummary) -> Table:
    runs = {"unchanged": summary.unchanged, "; ".join(summary.what_if or ()): summary}
    rows = [(name, run) for name, run in runs.items() if run is not None and run.iteration_time]

    def time(*keys: str) -> Callable[[tuple[str, Any]], str | None]:
        return lambda row: _time(*keys)(row[1])

    return table(
        "With and without the changes",
        rows if len(rows) > 1 else (),
        {
            "what if": lambda row: row[0],
            "iteration": time("iteration_time", "median"),
            "10 %": time("iteration_time", "p10"),
            "90 %": time("iteration_time", "p90"),
            "computing": time("breakdown", "compute"),
            "exposed": time("breakdown", "exposed_communication"),
        },
    )


VIEW = View(
    figures=FIGURES,
    sections=sections,
    quantities=lambda trials: QUANTITIES,
    compare=_compared,
    subject=_subject,
    name=_name,
    so_far=_so_far,
    origins=lambda summary: dict(summary.modelled or {}),
    remarks=_remarks,
    warnings=_notes,
    tables=tables,
    decisive=frozenset(
        {
            *(
                "Iteration time",
                "Unchanged",
                "Efficiency",
                "Predicted",
                "Computing",
                "Exposed communication",
            ),
            *("Hidden communication", "Delay that hides", "Peak memory"),
            *("waiting for others", "added delay", "cluster", "communication", "core"),
            "other ranks",
            *("With and without the changes", "Added delay", "Collectives of an iteration"),
        }
    ),
    endings={"failed": _failed, "noisy": _noisy},
)
