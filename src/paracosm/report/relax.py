"""Texts and charts of relaxations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.cluster.description import link_in_words
from paracosm.report.answers import answer
from paracosm.report.chart import extremes, histogram_height, overview_of, shown_sections, time_unit
from paracosm.report.shared_charts import (
    Shares,
    counted,
    histograms_by_run,
    staleness_of,
    utilisation_chart,
)
from paracosm.report.sweep_charts import Quantity, side_by_side
from paracosm.report.sweeps import best_sentence
from paracosm.report.timeline_charts import (
    PHASES,
    first_timelines,
    lane_of,
    node_group,
    timeline_chart,
)
from paracosm.results import RelaxationSummary
from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Level, Section, Symbol
from paracosm.results.view import Figure, Run, View, figure
from paracosm.timeline import Labels, Timeline, utilisation
from paracosm.units import format_duration, format_energy, format_size

if TYPE_CHECKING:
    from paracosm.results.metrics import Series


def _staleness_figure(which: str) -> Figure:
    def write(summary: RelaxationSummary) -> str | None:
        value = summary.staleness and summary.staleness.get(which)
        return None if value is None else f"{value:.3g}" if which == "mean" else f"{value:,}"

    return write


def _synchronous(summary: RelaxationSummary) -> str | None:
    twin = summary.twin
    if twin is None:
        return None
    ended = "" if twin.status == "converged" else f" ({twin.status})"
    return f"{format_duration(float(f'{twin.virtual_time:.4g}'))}{ended}"


FIGURES: Mapping[str, Figure] = {
    "Method": figure("method", str),
    "Read at": figure("read", str),
    "Processors": figure("processors", "{:,}".format),
    "Residual": figure("residual", "{:.3g}".format),
    "Error": figure("error", "{:.3g}".format),
    "Sweeps": figure("sweeps", "{:,.1f}".format),
    "Virtual time": figure("virtual_time", format_duration),
    "Synchronous": _synchronous,
    "Energy": figure("energy", format_energy),
    "Relaxations": figure("relaxations", "{:,}".format),
    "Updates": figure("updates", "{:,}".format),
    "Mean staleness": _staleness_figure("mean"),
    "Largest staleness": _staleness_figure("max"),
    "Wall time": figure("wall_time", format_duration),
}


def _subject(known: Mapping[str, Any]) -> str | None:
    matrix, problem = known.get("matrix"), known.get("problem")
    return PurePath(str(matrix)).name if matrix is not None else problem


def _name(known: Mapping[str, Any]) -> str | None:
    method, processors = known.get("method"), known.get("processors")
    if method is None:
        return None
    what = f"synchronous {method}" if known.get("synchronous") else str(method)
    if processors is None:
        return what
    return f"{what}, {processors} processor{'' if processors == 1 else 's'}"


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if len(residual := series("residual")):
        found["residual"] = float(residual.value[-1])
        found["relaxations"] = int(residual.step[-1])
        found["virtual_time"] = float(residual.virtual_time[-1])
        found["wall_time"] = float(residual.wall_time[-1])
    if len(error := series("error")):
        found["error"] = float(error.value[-1])
    return found


def _remarks(summary: RelaxationSummary) -> dict[str, str]:
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
    wrong, late = detection.get("false_detections"), detection.get("late_by")
    parts = [
        detection.get("by"),
        f"{wrong:,} times too early" if wrong else "",
        "" if late is None else f"{format_duration(late)} after an ideal observer",
        *(f"{detection[key]:,} {key}" for key in ("messages", "snapshots") if detection.get(key)),
    ]
    return ", ".join(filter(None, parts))


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


def _time_to_converge(summary: RelaxationSummary) -> float | None:
    return summary.virtual_time if summary.status == "converged" else None


def _gain(summary: RelaxationSummary) -> float | None:
    twin = summary.twin
    if twin is None or not twin.run_time or twin.twin_time is None:
        return None
    return twin.twin_time / twin.run_time


QUANTITIES = (
    Quantity("time_to_tolerance", "Virtual time to the tolerance", _time_to_converge, "s"),
    Quantity(
        *("sweeps_to_tolerance", "Sweeps to the tolerance"),
        lambda summary: summary.sweeps if summary.status == "converged" else None,
        "sweeps",
    ),
    Quantity(
        *("energy_to_tolerance", "Energy to the tolerance"),
        lambda summary: summary.energy if summary.status == "converged" else None,
        "J",
    ),
    Quantity("gain", "Speed beside the same iteration, synchronous", _gain, "times as fast"),
)

MARKED = 200  # runs with more processors are drawn as lines


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    busy = utilisation_chart(runs, _shares, "Utilisation of processors")
    is_full = all(share > FULL for run in runs for share in _shares(run).values())
    parts: list[tuple[str, list[Chart | None]]] = [
        ("Convergence", [residual_chart(runs, "time"), residual_chart(runs, "sweeps")]),
        ("Processors", [_updates(runs), _staleness(runs)]),
        ("Where the time went", [None if is_full else busy]),
        (
            "First updates",
            [] if is_full else first_timelines(runs, partial(timeline_chart, phases=PHASES)),
        ),
    ]
    return shown_sections(parts)


def _updates(runs: Sequence[Run]) -> Chart:
    marks: list[Curve | Dots] = []
    highest = 0.0
    for run in runs:
        series = run.series("updates")
        if not len(series):
            continue
        numbers = np.array([_number(node) for node in series.node.tolist()])
        order = np.argsort(numbers, kind="stable")
        x, y = numbers[order], series.value[order]
        highest = max(highest, float(y.max()))
        if len(x) <= MARKED:
            labels = tuple(
                f"processor {int(number)}: {int(value):,} updates"
                for number, value in zip(x.tolist(), y.tolist(), strict=True)
            )
            marks.append(Dots(x, y, labels, run.index, "updates"))
        else:
            kept = extremes(y)
            marks.append(Curve(x[kept], y[kept], run.index, "updates"))
    return Chart(
        name="updates",
        title="Updates of each processor",
        x=Axis("processor"),
        y=Axis("updates", limits=(0.0, 1.05 * highest or 1.0)),
        marks=tuple(marks),
        height=histogram_height(len(runs)),
    )


def _number(node: str) -> float:
    digits = node.removeprefix(node_group(node)).strip("_- ")
    return float(digits) if digits.isdigit() else 0.0


def _staleness(runs: Sequence[Run]) -> Chart:
    histograms = {
        run.index: found
        for run in runs
        if (found := counted(run.numbers.get("staleness") or {})) is not None
    }
    beyond = any(
        (run.numbers.get("staleness") or {}).get("max", 0) > histograms[run.index][0][-1]
        for run in runs
        if run.index in histograms
    )
    caption = "The last bin includes all larger values." if beyond else ""
    height = histogram_height(len(runs))
    return histograms_by_run(runs, histograms, staleness_of("updates"), height, caption)


def _shares(run: Run) -> Shares:
    if run.timeline is None:
        return {}
    spans, phased = run.timeline.spans, Timeline()
    lanes = [
        lane_of(resource, name, PHASES)
        for resource, name in zip(spans.resource.tolist(), spans.name.tolist(), strict=True)
    ]
    words = list(dict.fromkeys(lanes))
    resource = Labels(np.array([words.index(lane) for lane in lanes]), words)
    phased.extend(spans.node, resource, spans.name, spans.begin, spans.end)
    # A timeline may stop before the run. It is complete up to the begin of its last span.
    begin, end = float(spans.begin.max()), float(spans.end.max())
    until = min(float(run.numbers.get("virtual_time") or end), begin or end)
    return utilisation(phased, until) if until > 0 else {}


CURVES = {
    "error": "error of the iterate",
    "synchronous_residual": "synchronous",
    "residual": "residual",
}
EVENTS: Mapping[str, tuple[str, Symbol]] = {
    "checkpoint": ("checkpoints", "dot"),
    "rollback": ("rollbacks", "triangle"),
    "fault": ("faults", "cross"),
}
FULL = 0.995  # of the time: processors that compute so much of it have nothing else to show
TWIN = 1  # colour of the synchronous iteration, in a chart of one run
MOST_EVENTS = 400  # of a kind and a run; of more, an evenly spread selection is drawn
QUIET_CHECKPOINTS = 30  # more hide the curve, and are initially switched off


def residual_chart(runs: Sequence[Run], against: str) -> Chart | None:
    """Return the residual against "time" (virtual) or "sweeps"; None without data.

    A sweep is as many relaxations as there are unknowns; where an unfinished run does not state
    their number, the axis counts relaxations.
    """
    scale = _Scale(runs, against)
    marks: list[Curve | Dots | Level] = []
    for metric, series in CURVES.items():
        for run in runs:
            values = _positive(run.series(metric))
            if len(values):
                kept = extremes(np.log(values.value))
                x = scale.x(run, values)[kept]
                color = TWIN if metric == "synchronous_residual" and len(runs) == 1 else None
                faint = metric != "residual" and color is None
                marks.append(Curve(x, values.value[kept], run.index, series, faint, color))
    if not marks:
        return None
    marks += _levels(runs, marks)
    hidden = {CURVES["error"], CURVES["synchronous_residual"]} if len(runs) > 2 else set()
    for metric, (series, symbol) in EVENTS.items():
        for run in runs:
            events = _positive(run.series(metric))
            if metric == "checkpoint" and len(events) > QUIET_CHECKPOINTS:
                hidden.add(series)
            if len(events):
                marks.append(_events(run, events, metric, scale.x(run, events), series, symbol))
    marks += [cross for run in runs if (cross := _divergence(run, scale)) is not None]
    return Chart(
        name=f"residual_{against}",
        title=f"Residual against {scale.title}",
        x=scale.axis,
        y=Axis("residual", log=True, switch="residual"),
        marks=tuple(marks),
        hidden=frozenset(hidden),
    )


class _Scale:
    """The x axis: which column of a series it shows, in which unit."""

    def __init__(self, runs: Sequence[Run], against: str) -> None:
        self._time = against == "time"
        ends = [float(run.numbers.get("virtual_time") or 0.0) for run in runs]
        self._factor, unit = time_unit(max(ends))
        known = all(run.numbers.get("unknowns") for run in runs)
        self._rows = {run.index: run.numbers["unknowns"] if known else 1 for run in runs}
        counted = "sweeps" if known else "relaxations"
        self.title = "virtual time" if self._time else counted
        self.axis = Axis(f"virtual time ({unit})", switch="time") if self._time else Axis(counted)

    def x(self, run: Run, values: Series) -> Floats:
        if self._time:
            return values.virtual_time * self._factor
        return values.step / float(self._rows[run.index])


def _levels(runs: Sequence[Run], marks: Sequence[Curve | Dots | Level]) -> list[Level]:
    ends = np.concatenate([mark.x for mark in marks if isinstance(mark, Curve)])
    begin, end = float(ends.min()), float(ends.max())
    wanted = {run.numbers.get("tolerance") for run in runs}
    return [
        Level(tolerance, begin, end, f"tolerance {tolerance:.3g}", "tolerance")
        for tolerance in sorted(filter(None, wanted), reverse=True)
    ]


def _events(run: Run, events: Series, metric: str, x: Floats, series: str, symbol: Symbol) -> Dots:
    told = _drawn_events(run, metric, len(events))
    labels = [
        f"{what}: residual {value:.3g}"
        for what, value in zip(told, events.value.tolist(), strict=True)
    ]
    kept = np.linspace(0, len(x) - 1, min(len(x), MOST_EVENTS)).round().astype(np.intp)
    return Dots(
        x[kept], events.value[kept], tuple(labels[i] for i in kept), run.index, series, symbol
    )


def _drawn_events(run: Run, metric: str, count: int) -> list[str]:
    faults: Mapping[str, Any] = run.numbers.get("faults") or {}
    told = [str(event.get("what")) for event in faults.get("events") or []]
    return told if metric == "fault" and len(told) == count else [metric] * count


def _divergence(run: Run, scale: _Scale) -> Dots | None:
    values = _positive(run.series("residual"))
    if run.status != "diverged" or not len(values):
        return None
    last = values.value[-1:]
    return Dots(scale.x(run, values)[-1:], last, ("diverged",), run.index, "diverged", "cross")


def _positive(series: Series) -> Series:
    shown = np.isfinite(series.value) & (series.value > 0)
    return series if shown.all() else series.where(shown)


VIEW = View(
    figures=FIGURES,
    sections=sections,
    overview=lambda runs: overview_of(side_by_side(runs, QUANTITIES)),
    compare=lambda runs: best_sentence(
        *(runs, "Converges soonest with", _time_to_converge, format_duration)
    ),
    subject=_subject,
    name=_name,
    so_far=_so_far,
    remarks=_remarks,
    endings=dict.fromkeys(("diverged", "stopped"), answer),
)
