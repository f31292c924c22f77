"""What is said and shown of a script on a device that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from paracosm.emulation.device.assumptions import Assumptions, assumed_in_words
from paracosm.emulation.device.charts import sections
from paracosm.price import cost_text
from paracosm.results import ScriptSummary
from paracosm.results.view import (
    Table,
    View,
    assumed_hardware,
    assumed_values,
    assuming,
    counted,
    figure,
    percent,
    table,
)
from paracosm.units import format_duration, format_size

_MUCH = 0.1  # share of an iteration from which on the host, or links, limit it


def sentence(summary: ScriptSummary) -> str:
    """Return the answer: how long an iteration takes, what it waits for, whether it fits."""
    if summary.iteration_time is None or summary.memory is None:
        why = next((note["text"] for note in summary.notes if note["grave"]), "")
        ended = "was interrupted" if summary.status == "interrupted" else summary.status
        return f"The run {ended}: {why.rstrip('.: ')}." if why else f"The run {ended}."
    takes = (
        f"On {summary.world_size:,} {summary.hardware} ({summary.node}) an iteration takes "
        f"{format_duration(summary.iteration_time)}"
    )
    if summary.interval is not None:
        low, high = summary.interval.low, summary.interval.high
        takes += f" ({format_duration(low)} to {format_duration(high)})"
    if summary.unchanged is not None and summary.unchanged.iteration_time:
        before = summary.unchanged.iteration_time
        takes += (
            f", {summary.iteration_time / before:.3g} times the {format_duration(before)} without "
            "the change"
        )
    takes = ", ".join(filter(None, [takes, rate_text(summary), price_text(summary)]))
    memory = summary.memory
    reserved = format_size(memory.reserved + memory.overhead)
    holds = (
        f"Memory: {format_size(memory.allocated)} allocated, about {reserved} in use of "
        f"{format_size(memory.capacity)}: {memory.verdict}."
    )
    assumed = assuming(assumed_of_script(summary))
    advice = " ".join(f"{_upper(_saving(saving))}." for saving in memory.savings)
    recorded = ""
    if summary.recording is not None:
        seconds = format_duration(summary.recording["seconds"])
        recorded = f"Recorded in {seconds} here; nothing was computed."
    return " ".join(filter(None, [f"{takes}.", assumed, _limits(summary), holds, advice, recorded]))


def assumed_of_script(summary: ScriptSummary) -> list[str]:
    """Return what nobody has given, and moves the answer by more than a tenth.

    How unevenly a router loads experts, and how full masks are, nearly always do; what the host
    takes for an op, and a link, where the device waits for it.
    """
    rules, words = Assumptions(), {entry["text"] for entry in summary.assumed}
    parts = ["experts loaded evenly"] * (rules.experts in words)
    parts += ["masks that leave nothing out"] * (rules.masks in words)
    if (summary.launch_bound or 0.0) >= _MUCH:
        parts += [f"{text} of the host" for text in assumed_values(summary.durations, ["host"])]
    communication = (summary.breakdown or {}).get("exposed_communication", 0.0)
    waits_for_links = communication >= _MUCH * (summary.iteration_time or inf)
    return parts + assumed_hardware(summary.durations, waits_for_links=waits_for_links)


def _saving(saving: Mapping[str, Any]) -> str:
    """Return what a change frees and costs: "sharding over 16 ranks frees 8 GB: then it fits"."""
    seconds, verdict = saving["seconds"], saving["verdict"]
    cost = f" and takes {format_duration(seconds)} more an iteration" if seconds else ""
    then = {"tight": "then it is tight", "fits": "then it fits"}.get(verdict, "which is too little")
    return f"{saving['change']} frees {format_size(saving['freed'])}{cost}: {then}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def rate_text(summary: Mapping[str, Any]) -> str | None:
    """Return "5,770 tokens/s a GPU", of a single one "5,770 tokens/s"."""
    if (batch := summary.get("batch")) is None or not summary["throughput"]:
        return None
    rate = summary["throughput"] / summary["world_size"]
    suffix = " a GPU" if summary["world_size"] > 1 else ""
    return f"{f'{rate:,.0f}' if rate >= 99.5 else f'{rate:.3g}'} {batch['unit']}/s{suffix}"


def price_text(summary: Mapping[str, Any]) -> str | None:
    """Return "0.11 USD per million tokens", or the cost of an hour where no tokens are known."""
    if (cost := summary.get("cost")) is None:
        return None
    priced: Any = summary
    if (batch := summary.get("batch")) is None:
        return f"{cost_text(priced, cost / summary['iteration_time'] * 3600)} an hour"
    return f"{cost_text(priced, cost / batch['count'] * 1e6)} per million {batch['unit']}"


def _limits(summary: ScriptSummary) -> str:
    waits, host = summary.waits or 0.0, summary.launch_bound or 0.0
    if host >= _MUCH and host >= waits:
        return (
            f"For {percent(host)} of it the device has nothing to do: the host issues ops more "
            "slowly than it computes."
        )
    if summary.world_size == 1:
        return ""
    parts = summary.breakdown or {}
    reasons = {
        "exposed_communication": "waits for communication",
        "waiting": "waits for slower ranks",
        "bubble": "is the pipeline's bubble",
    }
    shares = {
        reason: parts[part] / summary.iteration_time
        for part, reason in reasons.items()
        if summary.iteration_time and parts.get(part)
    }
    said = [f"{percent(share)} of it {reason}" for reason, share in shares.items() if share > 0.001]
    text = f"{' and '.join(said) or 'None of it waits for communication'}."
    if summary.twice_bandwidth is not None and summary.iteration_time:
        faster = summary.twice_bandwidth / summary.iteration_time
        text += f" With links of twice the bandwidth it takes {percent(faster)} of that."
    return text


def _utilisation(summary: Mapping[str, Any]) -> str | None:
    flops, peak, time = (summary.get(key) for key in ("flops", "peak_flops", "iteration_time"))
    return percent(flops / time / peak) if flops and peak and time else None


def _memory(key: str) -> Any:
    def text(summary: Mapping[str, Any]) -> str | None:
        memory = summary.get("memory")
        return None if memory is None else format_size(memory[key])

    return text


def _verdict(summary: Mapping[str, Any]) -> str | None:
    memory = summary.get("memory")
    return None if memory is None else str(memory["verdict"])


def _tables(summary: Any) -> list[Table]:
    total = sum(summary["by_class"].values()) or 1.0
    memory = summary.get("memory")
    tables = [
        table(
            "Ops by class",
            list(summary["by_class"].items()),
            {
                "class": lambda row: row[0],
                "time": lambda row: format_duration(row[1]),
                "share": lambda row: percent(row[1] / total),
            },
        ),
        table(
            "Ops that take longest",
            summary["largest"],
            {
                "op": lambda row: row["op"].removeprefix("aten."),
                "tensors": lambda row: row["shapes"],
                "count": lambda row: f"{row['count']:,}",
                "time": lambda row: format_duration(row["time"]),
                "share": lambda row: percent(row["share"]),
            },
        ),
        table(
            "Collectives of an iteration",
            list(summary["collectives"].items()),
            {
                "kind": lambda row: row[0],
                "count": lambda row: f"{row[1]['count']:,}",
                "bytes": lambda row: format_size(row[1]["bytes"]),
                "time": lambda row: format_duration(row[1]["time"]),
            },
        ),
        table(
            "Memory when most is allocated",
            list(memory["by_kind"].items()) if memory else [],
            {"for": lambda row: row[0], "bytes": lambda row: format_size(row[1])},
        ),
        table(
            "Modules that hold most then",
            memory["modules"] if memory else [],
            {
                "module": lambda row: row["name"],
                "count": lambda row: f"{row['count']:,}",
                "parameters and their state": lambda row: _bytes(row["state"]),
                "activations and the rest": lambda row: _bytes(row["rest"]),
                "share": lambda row: percent((row["state"] + row["rest"]) / memory["allocated"]),
            },
        ),
        table(
            "With less memory",
            memory["savings"] if memory else [],
            {
                "change": lambda row: row["change"],
                "frees": lambda row: format_size(row["freed"]),
                "takes longer": lambda row: _seconds(row["seconds"]),
                "memory then": lambda row: row["verdict"],
            },
        ),
        table(
            "Values that were assumed",
            summary["assumed"],
            {
                "assumed": lambda row: row["text"],
                "read at": lambda row: row["site"],
                "times": lambda row: f"{row['count']:,}",
            },
        ),
    ]
    return [table for table in tables if table.rows]


def _bytes(size: int) -> str | None:
    return format_size(size) if size else None


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def _notes(summary: Any) -> dict[str, str | None]:
    notes = list(summary.get("notes") or ())
    if summary.get("iteration_time") is None:  # the answer is the first grave one
        said = next((note for note in notes if note["grave"]), None)
        notes = [note for note in notes if note is not said]
    texts = [note["text"] for note in notes]
    return {f"note {number}": text for number, text in enumerate(texts, 1)}


VIEW = View(
    sections=sections,
    figures={
        "iteration": figure("iteration_time", "s"),
        "throughput": rate_text,
        "cost": price_text,
        "waits for communication and others": figure("waits", "%"),
        "waits for the host": figure("launch_bound", "%"),
        "model flops utilisation": _utilisation,
        "memory allocated": _memory("allocated"),
        "memory reserved": _memory("reserved"),
        "memory of the device": _memory("capacity"),
        "room in memory": _verdict,
        "assumed": lambda summary: assumed_in_words(summary.get("assumed") or ()) or None,
        "iteration with twice the bandwidth": figure("twice_bandwidth", "s"),
    },
    tables=_tables,
    warnings=_notes,
    decisive=frozenset(
        {
            *("throughput", "cost", "waits for communication and others", "waits for the host"),
            *("model flops utilisation", "memory reserved", "room in memory", "assumed"),
            "With less memory",
        }
    ),
    subject=lambda known: (
        f"{counted(known['world_size'], 'rank')} on {known['hardware']}"
        if known.get("world_size")
        else None
    ),
    name=lambda known: known.get("hardware"),
)
