"""What is said of a prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from paracosm.report.figure import Ending, Figure, cluster_text, figure
from paracosm.report.job_tables import job_tables
from paracosm.report.table import Table
from paracosm.report.throughput_words import (
    THROUGHPUT_FIGURES,
    is_throughput,
    throughput_name,
    throughput_remarks,
    throughput_tables,
)
from paracosm.units import format_duration, format_size

if TYPE_CHECKING:
    from paracosm.study.series import Series

ROWS = 10  # of a table of ops or places
MOST = 0.5  # of the time, estimated, is worth a word
ENDINGS: Mapping[str, Ending] = {
    "interrupted": lambda summary: (
        "The run was interrupted before its end. This is what it had predicted, up to "
        f"{summary['workers']:,} workers."
    ),
}


def _interval(summary: Mapping[str, Any]) -> str | None:
    interval = summary.get("interval")
    if not interval:
        return None
    return f"{format_duration(interval['low'])} to {format_duration(interval['high'])}"


def _measured(summary: Mapping[str, Any]) -> str | None:
    measured = summary.get("measured")
    if not measured:
        return None
    time = format_duration(measured["iteration_time"])
    spread = f"{format_duration(measured['p10'])} to {format_duration(measured['p90'])}"
    return f"{time} ({spread})"


def _error(summary: Mapping[str, Any]) -> str | None:
    measured = summary.get("measured")
    return _signed(measured["error"]) if measured else None


def _coverage(summary: Mapping[str, Any]) -> str | None:
    coverage = summary.get("coverage")
    if not coverage:
        return None
    return ", ".join(f"{_share(share)} {source}" for source, share in coverage.items())


def _unchanged(summary: Mapping[str, Any]) -> str | None:
    """Return what is predicted without the changes, and how much longer or shorter that is."""
    before = summary.get("unchanged") or {}
    for key, write in (("iteration_time", format_duration), ("steps_per_second", _steps)):
        if before.get(key) is not None and summary.get(key) is not None:
            ratio = summary[key] / before[key] - 1 if before[key] else 0.0
            return f"{write(before[key])} (with the changes {_signed(ratio)})"
    return None


def _steps(rate: float) -> str:
    return f"{rate:.4g} steps/s"


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"


def _fits(summary: Mapping[str, Any]) -> str | None:
    fits = summary.get("fits")
    return None if fits is None else "yes" if fits else "no"


FIGURES: Mapping[str, Figure] = {
    "Batch": figure("batch", "{:,}".format),
    "Strategy": figure("strategy", str),
    "Workers": figure("workers", "{:,}".format),
    **THROUGHPUT_FIGURES,
    "Iteration time": figure("iteration_time", format_duration),
    "Unchanged": _unchanged,
    "Interval": _interval,
    "Measured": _measured,
    "Error": _error,
    "Examples/s": figure("examples_per_second", _rate),
    "Efficiency": figure("efficiency", "{:.1%}".format),
    "Peak memory": figure("peak_memory", format_size),
    "Fits into memory": _fits,
    "Coverage": _coverage,
    "Models": figure("models", "{:,}".format),
    "Mean error": figure("mean_error", "{:.1%}".format),
}


def subject(known: Mapping[str, Any]) -> str | None:
    """Say what the iteration is predicted from."""
    where = known.get("environment")
    return None if where is None else str(where)


def name(known: Mapping[str, Any]) -> str | None:
    """Name the run by model and batch."""
    if (folder := known.get("op_latencies")) is not None:
        return f"op latencies of {PurePath(str(folder)).name}"
    model, batch = known.get("model"), known.get("batch")
    if model is None:
        return throughput_name(known)
    parts = [PurePath(str(model)).stem if str(model).endswith(".graph") else str(model)]
    parts += [] if batch is None else [f"batch {batch}"]
    if isinstance(workers := known.get("workers"), int):
        parts += [str(known.get("strategy") or ""), f"{workers:,} workers"]
    return ", ".join(part for part in parts if part)


def so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    """Return nothing: a prediction has no metrics on its way."""
    return {}


def origins(summary: Mapping[str, Any]) -> dict[str, str]:
    """Say how each kind of duration was obtained."""
    return dict(summary.get("durations") or {})


def remarks(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what else is worth a line: the bottleneck, other methods, what was not timed."""
    lines = {
        "what if": "; ".join(summary.get("what_if") or ()),
        "bottleneck": summary.get("bottleneck") or "",
        "unchanged bottleneck": (summary.get("unchanged") or {}).get("bottleneck") or "",
        "cluster": cluster_text(summary.get("cluster") or {}),
        "memory": " ".join((summary.get("misfits") or ())[1:3]),
        "one replica": _replica(summary),
        "baselines": "" if is_throughput(summary) else _baselines(summary),
        "machine": _machine(summary.get("measured") or {}),
        "to measure": _to_measure(summary),
        "timings of": _environment(summary),
        "devices": "" if "op_latencies" in summary else _devices_known(summary.get("devices")),
        "captured for": _captured(summary),
        "profiled now": _profiled(summary),
        "not timed": _untimed(summary.get("untimed") or ()),
        "left out": _left_out(summary.get("left_out") or {}),
        **throughput_remarks(summary),
    }
    return {what: line for what, line in lines.items() if line}


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """Return the time by rank, phase, op type and place; of op latencies, every model."""
    if summary.get("comparisons"):
        of_each = (
            _comparisons(device, summary["comparisons"]) for device in summary.get("devices") or {}
        )
        return [_devices(summary), *of_each, *_several_gpus(summary)]
    breakdown = summary.get("breakdown") or {}
    titles = {"phase": "Time by phase", "op": "Time by op type", "place": "Time by place"}
    if summary.get("scaling"):
        titles = {what: f"{title}, one replica" for what, title in titles.items()}
    return (
        throughput_tables(summary)
        + job_tables(summary)
        + [
            _times(title, what, breakdown[what])
            for what, title in titles.items()
            if len(breakdown.get(what) or ()) > 0
        ]
    )


def _times(title: str, what: str, times: Mapping[str, float]) -> Table:
    """Return the largest times, and what the others are in all."""
    total = sum(times.values()) or 1.0
    shown = dict(islice(times.items(), ROWS))
    if len(times) > ROWS:
        rest = len(times) - ROWS
        shown[f"{rest} other{'s' * (rest > 1)}"] = sum(times.values()) - sum(shown.values())
    rows = (
        (each, format_duration(seconds), f"{seconds / total:.1%}")
        for each, seconds in shown.items()
    )
    return Table(title, (what, "time", "share"), tuple(rows))


def _devices(summary: Mapping[str, Any]) -> Table:
    rows = [
        (device, errors["mean_error"], errors["baselines"]["sum of durations"])
        for device, errors in summary["devices"].items()
    ]
    rows.append(("all", summary["mean_error"], summary["baselines"]["sum of durations"]))
    return Table(
        "Mean absolute error",
        ("device", "replay", "sum of latencies"),
        tuple((device, f"{error:.1%}", f"{serial:.1%}") for device, error, serial in rows),
    )


def _several_gpus(summary: Mapping[str, Any]) -> list[Table]:
    """Return the runs of a folder of op latencies on several GPUs, if it has any."""
    runs = (summary.get("several_gpus") or {}).get("comparisons") or ()
    rows = tuple(
        (
            f"{each['workers']} x {each['device']}",
            each["model"],
            format_duration(each["measured"]),
            format_duration(each["predicted"]),
            _signed(each["error"]),
            _signed(each["serial_error"]),
        )
        for each in runs
    )
    header = ("devices", "run", "measured", "predicted", "error", "sum of latencies")
    return [Table("Several devices", header, rows)] if rows else []


def _comparisons(device: str, comparisons: Sequence[Mapping[str, Any]]) -> Table:
    rows = (
        (
            each["model"],
            format_duration(each["measured"]["both"]),
            format_duration(each["predicted"]["both"]),
            _signed(each["error"]),
            _signed(each["serial_error"]),
        )
        for each in comparisons
        if each["device"] == device
    )
    header = ("model", "measured", "predicted", "error", "of the sum")
    return Table(device, header, tuple(rows))


def _baselines(summary: Mapping[str, Any]) -> str:
    if summary.get("comparisons"):
        return f"sum of latencies {summary['baselines']['sum of durations']:.1%} mean error"
    errors = (summary.get("measured") or {}).get("baseline_errors") or {}
    return ", ".join(
        f"{name} {format_duration(seconds)}" + (f" ({_signed(errors[name])})" if errors else "")
        for name, seconds in (summary.get("baselines") or {}).items()
        if not _same(seconds, (summary.get("replica") or summary).get("iteration_time"))
    )


def _replica(summary: Mapping[str, Any]) -> str:
    """Return how one replica does without others, of a job on a cluster."""
    replica = summary.get("replica") or {}
    if not replica:
        return ""
    time, rate = format_duration(replica["iteration_time"]), replica["examples_per_second"]
    if replica.get("split", 1) > 1:
        return f"{time} of computing on each of the {replica['split']} devices that split it"
    measured = replica.get("measured")
    return (
        f"{time} on one device"
        + ("" if measured is None else f" (measured: {format_duration(measured)})")
        + ("" if rate is None else f", {_rate(rate)} examples/s")
    )


def _devices_known(origins: Any) -> str:
    """Return how the speeds of the devices of a cluster are known."""
    if not isinstance(origins, Mapping):
        return ""
    return "; ".join(f"{device}: {origin}" for device, origin in origins.items())


def _machine(measured: Mapping[str, Any]) -> str:
    """Return how much slower the machine was when the iteration was measured."""
    slower = measured.get("slower")
    if slower is None or abs(slower) < 0.005:
        return ""
    error = measured.get("error_at_its_speed")
    at_it = "" if error is None else f": at that speed the prediction is {_signed(error)} off"
    return f"{_signed(slower)} time for the same work when the iteration was measured{at_it}"


def _to_measure(summary: Mapping[str, Any]) -> str:
    """Say how to know better, where most of the time is estimated for this very machine."""
    coverage, count = summary.get("coverage") or {}, summary.get("estimated_ops") or 0
    guessed = sum(coverage.get(source, 0.0) for source in ("interpolated", "estimated", "unknown"))
    here = summary.get("differences") == ""
    if not here or not count or guessed <= MOST or summary.get("not_profiled"):
        return ""
    return f"{count:,} ops, {guessed:.0%} of the time: --exact times them here, on this machine"


def _same(seconds: float, time: float | None) -> bool:
    """Whether a baseline is the prediction itself: on a CPU ops simply add up."""
    return time is not None and math.isclose(seconds, time)


def _environment(summary: Mapping[str, Any]) -> str:
    differences = summary.get("differences")
    return f"{summary.get('environment') or ''}" + (f" ({differences})" if differences else "")


def _captured(summary: Mapping[str, Any]) -> str:
    """Return what the graph was captured for, where the timings are of another kind of device."""
    device = summary.get("captured_for")
    if device is None or device == summary.get("device"):
        return ""
    return f"{device}: some ops of the device that was timed may be others"


def _profiled(summary: Mapping[str, Any]) -> str:
    refused = summary.get("not_profiled") or {}
    count = summary.get("profiled") or 0
    parts = [f"{count:,} ops, added to the database"] if count else []
    parts += [f"not {op}: {reason}" for op, reason in islice(refused.items(), 3)]
    return "; ".join(parts)


def _untimed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}: the host's alone, counted as a launch" if names else ""


def _left_out(files: Mapping[str, str]) -> str:
    """Return the reasons, each with its files."""
    by_reason: dict[str, list[str]] = {}
    for file, reason in files.items():
        by_reason.setdefault(reason, []).append(file)
    return "; ".join(f"{_few(names)} ({reason})" for reason, names in by_reason.items())


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 2 else ""
    return ", ".join(names[:1] if more else names) + more


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def _signed(error: float) -> str:
    return f"{error:+.1%}"
