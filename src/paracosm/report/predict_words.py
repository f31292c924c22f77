"""Texts on a prediction."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any

from paracosm.cluster.description import cluster_text
from paracosm.report.answers import HALF, knee_text
from paracosm.report.chart import overview_of
from paracosm.report.predict import sections
from paracosm.report.strategy_plan import search_words, strategies_table
from paracosm.report.sweep_charts import Quantity, side_by_side
from paracosm.report.sweeps import best_sentence
from paracosm.report.throughput import (
    THROUGHPUT_FIGURES,
    job_tables,
    throughput_name,
    throughput_remarks,
    throughput_tables,
)
from paracosm.results import (
    IterationSummary,
    JobSummary,
    Summary,
    ThroughputSummary,
)
from paracosm.results.summaries import Interval, Measured, OneReplica
from paracosm.results.view import Figure, Run, Table, View, figure
from paracosm.units import format_between, format_duration, format_energy, format_size

ROWS = 10  # of a table of ops or places
MOST = 0.5  # share of the time, estimated, that is worth a remark


def _interval(summary: Any) -> str | None:
    interval: Interval | None = summary.get("interval")
    if interval is None:
        return None
    low, high = interval["low"], interval["high"]
    return format_between(low, summary["iteration_time"], high, format_duration)[1]


def _measured(measured: Measured) -> str:
    time, spread = format_between(
        measured["p10"], measured["iteration_time"], measured["p90"], format_duration
    )
    return f"{time} ({spread})"


def _coverage(summary: Mapping[str, Any]) -> str | None:
    coverage = summary.get("coverage")
    if not coverage:
        return None
    return ", ".join(f"{_share(share)} {source}" for source, share in coverage.items())


def _unchanged(summary: Mapping[str, Any]) -> str | None:
    before = summary.get("unchanged") or {}
    for key, write in (
        ("iteration_time", format_duration),
        ("steps_per_second", "{:.4g} steps/s".format),
    ):
        if before.get(key) is not None and summary.get(key) is not None:
            ratio = summary[key] / before[key] - 1 if before[key] else 0.0
            return f"{write(before[key])} (with the changes {_signed(ratio)})"
    return None


def _knee(summary: Summary) -> str | None:
    return knee_text(summary.throughput) if isinstance(summary, JobSummary) else None


def _rate(rate: float) -> str:
    return f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"


def _joules(summary: Summary) -> float | None:
    return rows[-1].energy if (rows := summary.get("throughput")) else None


def _energy(summary: Summary) -> str | None:
    joules = _joules(summary)
    what = "a step" if isinstance(summary, ThroughputSummary) else "an iteration"
    return None if joules is None else f"{format_energy(joules)} {what}"


FIGURES: Mapping[str, Figure] = {
    "Batch": figure("batch", "{:,}".format),
    "Shape": figure("shape", str),
    "Dtype": figure("dtype", str),
    "Optimizer": figure("optimizer", str),
    "Strategy": figure("strategy", str),
    "Workers": figure("workers", "{:,}".format),
    **THROUGHPUT_FIGURES,
    "Examples an iteration": lambda summary: (
        f"{summary.examples:,}" if isinstance(summary, JobSummary) and summary.examples else None
    ),
    "Iteration time": figure("iteration_time", format_duration),
    "Unchanged": _unchanged,
    "Interval": _interval,
    "Measured": figure("measured", _measured),
    "Error": figure("measured", lambda measured: _signed(measured["error"])),
    "Energy": _energy,
    "Examples/s": figure("examples_per_second", _rate),
    "Efficiency": figure("efficiency", "{:.1%}".format),
    f"At least {HALF:.0%} efficient": _knee,
    "Peak memory": figure("peak_memory", format_size),
    "Fits into memory": figure("fits", lambda fits: "yes" if fits else "no"),
    "Coverage": _coverage,
}


def _number(key: str) -> Callable[[Summary], float | None]:
    return lambda summary: summary.get(key)


QUANTITIES = (
    Quantity("throughput", "Throughput", _number("examples_per_second"), "examples/s"),
    Quantity("steps", "Steps of all workers", _number("steps_per_second"), "steps/s"),
    Quantity("iteration", "Iteration time", _number("iteration_time"), "s"),
    Quantity("varied_efficiency", "Efficiency", _number("efficiency"), "%"),
    Quantity("peak_memory", "Peak memory", _number("peak_memory"), "B"),
    Quantity("energy", "Energy of an iteration, or a step", _joules, "J"),
)


def _compare(runs: Sequence[Run]) -> str | None:
    """Say which of several runs has the highest throughput."""
    rates = {"examples_per_second": "examples/s", "steps_per_second": "steps/s"}
    key = next((key for key in rates if all(run.numbers.get(key) for run in runs)), None)
    if key is None:
        return None
    return best_sentence(
        runs,
        "Highest throughput with",
        lambda summary: 1 / summary[key],
        lambda cost: f"{_rate(1 / cost)} {rates[key]}",
    )


def _subject(known: Mapping[str, Any]) -> str | None:
    where = known.get("environment")
    return None if where is None else str(where)


def _name(known: Mapping[str, Any]) -> str | None:
    model, batch = known.get("model"), known.get("batch")
    if model is None:
        return throughput_name(known)
    parts = [PurePath(str(model)).stem if str(model).endswith(".graph") else str(model)]
    parts += [] if batch is None else [f"batch {batch}"]
    if isinstance(workers := known.get("workers"), int):
        strategy, rows = str(known.get("strategy") or ""), list(known.get("throughput") or [])
        if len(rows) > 1:  # what the strategy says of data parallelism is of the last of them
            strategy = re.sub(r"\bdp=\d+", "dp", strategy)
        first = f"{rows[0]['workers']:,} to " if len(rows) > 1 else ""
        parts += [strategy, f"{first}{workers:,} workers"]
    return ", ".join(part for part in parts if part)


def _remarks(summary: Summary) -> dict[str, str]:
    match summary:
        case ThroughputSummary():
            lines = {**_of_cluster(summary), **throughput_remarks(summary)}
        case JobSummary():
            lines = {
                **_of_cluster(summary),
                "strategy by default": ", ".join(
                    f"{key}={value}" for key, value in (summary.strategy_defaults or {}).items()
                ),
                "strategies": "" if summary.search is None else search_words(summary.search),
                "memory": " ".join(summary.misfits[1:3]),
                "one replica": _replica(summary.replica),
                "baselines, one replica": _baselines(summary, summary.replica.iteration_time),
                "devices": "; ".join(
                    f"{device}: {origin}" for device, origin in summary.devices.items()
                ),
                **_of_timings(summary),
            }
        case IterationSummary():
            lines = {
                "bottleneck": summary.bottleneck,
                "baselines, the iteration": _baselines(summary, summary.iteration_time),
                "machine": _machine(summary.measured),
                **_of_timings(summary),
            }
        case _:
            lines = {}
    return {what: line for what, line in lines.items() if line}


def _of_cluster(summary: JobSummary | ThroughputSummary) -> dict[str, str]:
    return {
        "what if": "; ".join(summary.what_if or ()),
        "bottleneck": summary.bottleneck,
        "unchanged bottleneck": (summary.unchanged or {}).get("bottleneck") or "",
        "cluster": cluster_text(summary.cluster or {}),
    }


def _of_timings(summary: IterationSummary | JobSummary) -> dict[str, str]:
    return {
        "graph": f"{summary.model}: from {summary.source}" if summary.source else "",
        "to measure": _to_measure(summary),
        "timings of": _environment(summary),
        "captured for": _captured(summary),
        "profiled now": _profiled(summary),
        "not timed": _untimed(summary.untimed or ()),
    }


def _tables(summary: Summary) -> list[Table]:
    match summary:
        case ThroughputSummary():
            return throughput_tables(summary)
        case JobSummary():
            found = summary.search
            tried = [] if found is None else [strategies_table("Fastest strategies", found.ranked)]
            return tried + job_tables(summary) + _breakdown(summary, ", one replica")
        case IterationSummary():
            return _breakdown(summary, "")
    return []


def _breakdown(summary: IterationSummary | JobSummary, of_what: str) -> list[Table]:
    titles = {"phase": "Time by phase", "op": "Time by op type", "place": "Time by place"}
    breakdown = summary.breakdown or {}
    return [
        _times(f"{title}{of_what}", what, breakdown[what])
        for what, title in titles.items()
        if len(breakdown.get(what) or ()) > 0
    ]


def _times(title: str, what: str, times: Mapping[str, float]) -> Table:
    """Return the largest times, and the sum of the others."""
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


def _baselines(summary: IterationSummary | JobSummary, time: float) -> str:
    errors = {} if summary.measured is None else summary.measured.baseline_errors
    return ", ".join(
        f"{name} {format_duration(seconds)}" + (f" ({_signed(errors[name])})" if errors else "")
        for name, seconds in (summary.baselines or {}).items()
        # On a CPU ops add up: such a baseline is the prediction itself.
        if not math.isclose(seconds, time)
    )


def _replica(replica: OneReplica) -> str:
    time, rate = format_duration(replica.iteration_time), replica.examples_per_second
    if (replica.split or 1) > 1:
        return f"{time} of computing on each of the {replica.split} devices that split it"
    return (
        f"{time} on one device"
        + ("" if replica.measured is None else f" (measured: {format_duration(replica.measured)})")
        + ("" if rate is None else f", {_rate(rate)} examples/s")
    )


def _machine(measured: Measured | None) -> str:
    slower = None if measured is None else measured.slower
    if measured is None or slower is None or abs(slower) < 0.005:
        return ""
    error = measured.error_at_its_speed
    at_it = "" if error is None else f": at that speed the prediction is {_signed(error)} off"
    return f"{_signed(slower)} time for the same work when the iteration was measured{at_it}"


def _to_measure(summary: IterationSummary | JobSummary) -> str:
    """Suggest a measurement where most of the time is estimated for this machine."""
    coverage, count = summary.coverage or {}, summary.estimated_ops or 0
    guessed = sum(coverage.get(source, 0.0) for source in ("interpolated", "estimated", "unknown"))
    here = summary.differences == ""
    if not here or not count or guessed <= MOST or summary.not_profiled:
        return ""
    return f"{count:,} ops, {guessed:.0%} of the time: --exact times them here, on this machine"


def _environment(summary: IterationSummary | JobSummary) -> str:
    differences = f" ({summary.differences})" if summary.differences else ""
    return f"{summary.environment or ''}{differences}"


def _captured(summary: IterationSummary | JobSummary) -> str:
    device = summary.captured_for
    if device is None or device == summary.device:
        return ""
    return f"{device}: the timed device may run other ops"


def _profiled(summary: IterationSummary | JobSummary) -> str:
    refused = summary.not_profiled or {}
    count = summary.profiled or 0
    parts = [f"{count:,} ops, added to the database"] if count else []
    parts += [f"not {op}: {reason}" for op, reason in islice(refused.items(), 3)]
    return "; ".join(parts)


def _untimed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}: host-only ops, counted as launches" if names else ""


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def _signed(error: float) -> str:
    return f"{error:+.1%}"


VIEW = View(
    figures=FIGURES,
    sections=sections,
    overview=lambda runs: overview_of(side_by_side(runs, QUANTITIES)),
    compare=_compare,
    subject=_subject,
    name=_name,
    remarks=_remarks,
    tables=_tables,
    endings={
        "interrupted": lambda summary: (
            f"The run was interrupted. These are the predictions up to {summary.workers:,} workers."
        )
    },
)
