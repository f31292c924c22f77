"""What is said of a relaxation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from paracosm.cluster.description import link_in_words
from paracosm.report.relax import sections
from paracosm.report.view import Figure, View, figure
from paracosm.results import RelaxationSummary
from paracosm.units import format_duration, format_size

if TYPE_CHECKING:
    from paracosm.studies import Series


def _staleness(which: str) -> Figure:
    def write(summary: RelaxationSummary) -> str | None:
        value = summary.staleness and summary.staleness.get(which)
        return None if value is None else f"{value:.3g}" if which == "mean" else f"{value:,}"

    return write


FIGURES: Mapping[str, Figure] = {
    "Method": figure("method", str),
    "Read at": figure("read", str),
    "Processors": figure("processors", "{:,}".format),
    "Residual": figure("residual", "{:.3g}".format),
    "Error": figure("error", "{:.3g}".format),
    "Sweeps": figure("sweeps", "{:,.1f}".format),
    "Virtual time": figure("virtual_time", format_duration),
    "Relaxations": figure("relaxations", "{:,}".format),
    "Updates": figure("updates", "{:,}".format),
    "Mean staleness": _staleness("mean"),
    "Largest staleness": _staleness("max"),
    "Wall time": figure("wall_time", format_duration),
}


def _subject(known: Mapping[str, Any]) -> str | None:
    """Name the system that is solved."""
    matrix, problem = known.get("matrix"), known.get("problem")
    return PurePath(str(matrix)).name if matrix is not None else problem


def _name(known: Mapping[str, Any]) -> str | None:
    """Name the run by method and processors."""
    method, processors = known.get("method"), known.get("processors")
    if method is None:
        return None
    what = f"synchronous {method}" if known.get("synchronous") else str(method)
    if processors is None:
        return what
    return f"{what}, {processors} processor{'' if processors == 1 else 's'}"


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    """Return what the metrics of an unfinished run say."""
    found: dict[str, Any] = {}
    if len(residual := series("residual")):
        found["residual"] = float(residual.value[-1])
        found["relaxations"] = int(residual.step[-1])
        found["virtual_time"] = float(residual.virtual_time[-1])
        found["wall_time"] = float(residual.wall_time[-1])
    if len(error := series("error")):
        found["error"] = float(error.value[-1])
    return found


def _diverged(summary: RelaxationSummary) -> str:
    residual, initial = summary.residual, summary.initial_residual
    finite = residual is not None and math.isfinite(residual)
    reached = f"reached {residual:.3g}" if finite else "was no finite number any more"
    began = "" if initial is None else f" from {initial:.3g}"
    rate = summary.growth_rate
    grew = "" if rate is None or rate <= 1 else f", growing by the factor {rate:.4g} a sweep"
    return f"The iteration diverged: the residual{began} {reached}{grew}."


def _stopped(summary: RelaxationSummary) -> str:
    reason = summary.reason or "the run reached its limit before it converged"
    residual, tolerance = summary.residual, summary.tolerance
    known = residual is not None and tolerance is not None
    where = f": the residual is {residual:.3g}, the tolerance {tolerance:.3g}" if known else ""
    return f"{reason[0].upper()}{reason[1:].rstrip('.')}{where}."


def _remarks(summary: RelaxationSummary) -> dict[str, str]:
    """Return what theory says, how the end was noticed, and what became of faults."""
    lines = {
        "what if": _what_if(summary),
        "network": _network(summary.cluster or {}),
        "tolerance": _tolerance(summary),
        "spectral radius": _sentence(summary.spectral_radius),
        "Definition 1": _sentence(summary.definition),
        "detection": _detection(summary.detection or {}),
        "messages": _messages(summary.messages or {}),
        "faults": _faults(summary.faults or {}),
        "checkpoints": _checkpoints(summary.checkpoints or {}),
    }
    return {what: line for what, line in lines.items() if line}


def _what_if(summary: RelaxationSummary) -> str:
    unchanged = summary.unchanged
    if not unchanged:
        return ""
    changes = "; ".join(summary.what_if or ())
    before, after = unchanged["virtual_time"], summary.virtual_time
    ratio = f", {after / before:.3g} times as long" if before > 0 else ""
    return (
        f"{changes}: {format_duration(after)}{ratio}; unchanged {format_duration(before)} "
        f"({unchanged['status']})"
    )


def _network(cluster: Mapping[str, Any]) -> str:
    if not cluster:
        return ""
    others = [key for key in cluster if key.startswith("links ")]
    rest = f"; and {', '.join(others)}" if others else ""
    return f"{cluster['topology']} of {cluster['workers']}: {link_in_words(cluster['links'])}{rest}"


def _tolerance(summary: RelaxationSummary) -> str:
    tolerance, norm = summary.tolerance, summary.norm
    if tolerance is None:
        return ""
    return f"{tolerance:.3g}" if norm is None else f"{tolerance:.3g}, norm: {norm}"


def _sentence(part: Mapping[str, Any] | str | None) -> str:
    return str(part.get("sentence") or "") if isinstance(part, Mapping) else part or ""


def _detection(detection: Mapping[str, Any]) -> str:
    wrong = detection.get("false_detections")
    too_early = f", {wrong:,} times too early" if wrong else ""
    return f"{detection['by']}{too_early}" if detection.get("by") else ""


def _messages(messages: Mapping[str, Any]) -> str:
    if messages.get("count") is None:
        return ""
    return f"{messages['count']:,}, {format_size(messages.get('bytes') or 0)}"


def _faults(faults: Mapping[str, Any]) -> str:
    counted = ("injected", "detected", "undetected", "false_alarms")
    parts = [
        f"{faults[key]:,} {key.replace('_', ' ')}" for key in counted if faults.get(key) is not None
    ]
    return ", ".join(parts) if any(faults.get(key) for key in counted) else ""


def _checkpoints(checkpoints: Mapping[str, Any]) -> str:
    if checkpoints.get("taken") is None:
        return ""
    rollbacks = checkpoints.get("rollbacks") or 0
    parts = [
        f"{checkpoints['taken']:,} taken",
        f"{rollbacks:,} rollback{'' if rollbacks == 1 else 's'}",
    ]
    if checkpoints.get("cost"):
        parts.append(f"they cost {format_duration(checkpoints['cost'])}")
    suggested = [
        f"{format_duration(interval)} ({whose.title()})"
        for whose in ("young", "daly")
        if (interval := checkpoints.get(f"suggested_interval_{whose}")) is not None
    ]
    if suggested:
        parts.append(f"suggested interval {', '.join(suggested)}")
    advice = checkpoints.get("advice")
    return ", ".join(parts) + (f". {advice}" if advice else "")


VIEW = View(
    figures=FIGURES,
    sections=sections,
    subject=_subject,
    name=_name,
    so_far=_so_far,
    remarks=_remarks,
    endings={"diverged": _diverged, "stopped": _stopped},
)
