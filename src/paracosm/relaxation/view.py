"""What a page shows of relaxations: the answer, key figures, residuals, updates, utilisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.cluster.description import link_in_words
from paracosm.results import RelaxationSummary
from paracosm.results.chart import Axis, Chart, Curve, Dots, Level, Mark, Sections, Symbol
from paracosm.results.charts import counted_histogram, histogram_chart, histograms_by_run
from paracosm.results.comparison import best_sentence
from paracosm.results.node_charts import (
    PHASES,
    Shares,
    first_spans,
    first_timelines,
    lane_of,
    node_group,
    utilisation_chart,
)
from paracosm.results.summaries import RelaxationTwin
from paracosm.results.view import (
    Figure,
    Known,
    Quantity,
    Run,
    View,
    counted,
    figure,
    short_duration,
    unless_failed,
)
from paracosm.timeline import Labels, Timeline, utilisation
from paracosm.units import format_duration, format_energy, format_size

if TYPE_CHECKING:
    from paracosm.results.metrics import Series

MOST_SQUARED = 1e150  # sums of squares of larger numbers may be infinite
ALIKE = 0.01  # relative difference up to which times count as equal


def sentence(summary: RelaxationSummary) -> str | None:
    """Describe the outcome of an iteration, and compare it with its synchronous baseline."""
    if None in (summary.virtual_time, summary.sweeps):
        return None
    if summary.status == "diverged":
        text = _diverged(summary)
    elif summary.status == "stopped":
        text = _stopped(summary)
    else:
        how = "synchronous" if summary.synchronous else "asynchronous"
        text = (
            f"{how} {summary.method} on {counted(summary.processors, 'processor')} "
            f"{summary.status} after {short_duration(summary.virtual_time)}, "
            f"{_sweeps(summary.sweeps)}."
        )
    baseline = "" if summary.twin is None else _baseline(summary, summary.twin)
    return " ".join(filter(None, [f"{text[0].upper()}{text[1:]}", _noticed(summary), baseline]))


def _sweeps(sweeps: float) -> str:
    return f"{sweeps:,.0f} sweeps" if sweeps >= 100 else f"{sweeps:.3g} sweeps"


def _noticed(summary: RelaxationSummary) -> str:
    """Say how late a residual test was, and how often it was wrong before."""
    late, wrong = (summary.detection.get(key) for key in ("late_by", "false_detections"))
    if late is None:
        return ""
    before = f" and {counted(wrong, 'false detection')}" if wrong else ""
    return f"It was noticed {short_duration(late)}{before} after it was so."


def _diverged(summary: RelaxationSummary) -> str:
    residual, initial, rate = summary.residual, summary.initial_residual, summary.growth_rate
    reached = "was no longer finite"
    if residual is not None and math.isfinite(residual):
        reached = f"reached {residual:.3g}"
        reached += ", whose square is not finite" if residual > MOST_SQUARED else ""
    began = "" if initial is None else f" from {initial:.3g}"
    grew = "" if rate is None or rate <= 1 else f", growing by the factor {rate:.4g} a sweep"
    return f"The iteration diverged: the residual{began} {reached}{grew}."


def _stopped(summary: RelaxationSummary) -> str:
    reason = summary.reason or "the run reached its limit before it converged"
    residual, tolerance = summary.residual, summary.tolerance
    known = residual is not None and tolerance is not None
    where = f": the residual is {residual:.3g}, the tolerance {tolerance:.3g}" if known else ""
    return f"{reason.rstrip('.')}{where}."


def _baseline(summary: RelaxationSummary, twin: RelaxationTwin) -> str:
    if twin.status == "diverged":
        also = "diverges as well" if summary.status == "diverged" else "diverges"
        return f"The same iteration, synchronous, {also}."
    if twin.run_time is None or twin.twin_time is None:
        came = "converges" if twin.status == "converged" else f"comes to {twin.residual:.3g}"
        time = short_duration(twin.virtual_time)
        return f"The same iteration, synchronous, {came} in {time}."
    to = sweeps = energy = ""
    if twin.level is not None:
        to = f" to a residual of {twin.level:.3g}"
    else:
        sweeps = f", {_sweeps(twin.sweeps)}"
        if summary.energy and twin.energy:
            energy_here, other = format_energy(summary.energy), format_energy(twin.energy)
            ratio = summary.energy / twin.energy
            energy = f" and takes {ratio:.2g} times the energy ({energy_here} against {other})"
    ratio = twin.twin_time / twin.run_time if twin.run_time else 1.0
    if abs(ratio - 1) < ALIKE or f"{max(ratio, 1 / ratio):.2g}" == "1":
        how = "as fast as synchronous"
    elif ratio > 1:
        how = f"{ratio:.2g} times as fast as synchronous"
    else:
        how = f"slower than synchronous by a factor of {1 / ratio:.2g}"
    here, other = map(short_duration, (twin.run_time, twin.twin_time))
    return f"Asynchronous is {how}{to} here ({here} against {other}{sweeps}){energy}."


def _synchronous(summary: RelaxationSummary) -> str | None:
    twin = summary.twin
    if twin is None:
        return None
    ended = "" if twin.status == "converged" else f" ({twin.status})"
    return f"{short_duration(twin.virtual_time)}{ended}"


FIGURES: Mapping[str, Figure] = {
    "Method": figure("method"),
    "Read at": figure("read"),
    "Processors": figure("processors", "n"),
    "Residual": figure("residual", "{:.3g}".format),
    "Error": figure("error", "{:.3g}".format),
    "Sweeps": figure("sweeps", "{:,.1f}".format),
    "Virtual time": figure("virtual_time", "s"),
    "Synchronous": _synchronous,
    "Energy": figure("energy", "J"),
    "Relaxations": figure("relaxations", "n"),
    "Updates": figure("updates", "n"),
    "Mean staleness": figure("staleness.mean", "{:.3g}".format),
    "Largest staleness": figure("staleness.max", "n"),
    "Wall time": figure("wall_time", "s"),
}


def _subject(known: Known) -> str | None:
    matrix = known.get("matrix")
    return known.get("problem") if matrix is None else PurePath(str(matrix)).name


def _name(known: Known) -> str | None:
    method, processors = known.get("method"), known.get("processors")
    if method is None:
        return None
    name = f"synchronous {method}" if known.get("synchronous") else str(method)
    if processors is None:
        return name
    return f"{name}, {processors} processor{'' if processors == 1 else 's'}"


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if len(residual := series("residual")):
        known["residual"] = float(residual.value[-1])
        known["relaxations"] = int(residual.step[-1])
        known["virtual_time"] = float(residual.virtual_time[-1])
        known["wall_time"] = float(residual.wall_time[-1])
    if len(error := series("error")):
        known["error"] = float(error.value[-1])
    return known


def _remarks(summary: RelaxationSummary) -> dict[str, str | None]:
    radius, messages = summary.spectral_radius, summary.messages or {}
    count = messages.get("count")
    return {
        "what if": _what_if(summary),
        "network": _network(summary.cluster or {}),
        "tolerance": _tolerance(summary),
        "spectral radius": None if radius is None else radius.sentence,
        "Definition 1": (summary.definition or {}).get("sentence"),
        "detection": _detection(summary.detection or {}),
        "messages": count and f"{count:,}, {format_size(messages.get('bytes') or 0)}",
        "faults": _faults(summary.faults or {}),
        "checkpoints": _checkpoints(summary.checkpoints or {}, summary.faults or {}),
    }


def _what_if(summary: RelaxationSummary) -> str:
    if not summary.unchanged:
        return "; ".join(summary.what_if or ())
    before, after = summary.unchanged["virtual_time"], summary.virtual_time
    ratio = f", {after / before:.3g} times as long" if before > 0 else ""
    return (
        f"{'; '.join(summary.what_if or ())}: {format_duration(after)}{ratio}; unchanged "
        f"{format_duration(before)} ({summary.unchanged['status']})"
    )


def _network(cluster: Mapping[str, Any]) -> str | None:
    if not cluster:
        return None
    others = [key for key in cluster if key.startswith("links ")]
    rest = f"; and {', '.join(others)}" if others else ""
    return f"{cluster['topology']} of {cluster['workers']}: {link_in_words(cluster['links'])}{rest}"


def _tolerance(summary: RelaxationSummary) -> str | None:
    if summary.tolerance is None:
        return None
    norm = "" if summary.norm is None else f", norm: {summary.norm}"
    return f"{summary.tolerance:.3g}{norm}"


def _detection(detection: Mapping[str, Any]) -> str:
    wrong, late = detection.get("false_detections"), detection.get("late_by")
    parts = [
        detection.get("by"),
        f"{wrong:,} times too early" if wrong else "",
        "" if late is None else f"{format_duration(late)} after an ideal observer",
        *(f"{detection[key]:,} {key}" for key in ("messages", "snapshots") if detection.get(key)),
    ]
    return ", ".join(filter(None, parts))


def _faults(faults: Mapping[str, Any]) -> str:
    names = ("injected", "detected", "undetected", "false_alarms")
    if faults.get("injected") == 0 and not faults.get("false_alarms"):
        return "none struck: the run ended before"
    counts = {name.replace("_", " "): faults.get(name) for name in names}
    parts = [f"{count:,} {name}" for name, count in counts.items() if count is not None]
    return ", ".join(parts) if any(counts.values()) else ""


def _checkpoints(checkpoints: Mapping[str, Any], faults: Mapping[str, Any]) -> str | None:
    if checkpoints.get("taken") is None:
        return None
    rollbacks = checkpoints.get("rollbacks") or 0
    parts = [f"{checkpoints['taken']:,} taken", counted(rollbacks, "rollback")]
    if rollbacks > 2 * (faults.get("injected") or rollbacks):
        parts[-1] += " (updates under way survive one, and may cause the next)"
    if checkpoints.get("cost"):
        parts.append(f"they cost {format_duration(checkpoints['cost'])}")
    suggested = [
        f"{format_duration(interval)} ({author.title()})"
        for author in ("young", "daly")
        if (interval := checkpoints.get(f"suggested_interval_{author}")) is not None
    ]
    if suggested:
        parts.append(f"suggested interval {', '.join(suggested)}")
    advice = checkpoints.get("advice")
    return ", ".join(parts) + (f". {advice}" if advice else "")


def _if_converged(key: str) -> Callable[[RelaxationSummary], float | None]:
    return lambda summary: summary[key] if summary.status == "converged" else None


_time = _if_converged("virtual_time")


def _gain(summary: RelaxationSummary) -> float | None:
    twin = summary.twin
    if twin is None or not twin.run_time or twin.twin_time is None:
        return None
    return twin.twin_time / twin.run_time


QUANTITIES = (
    Quantity("time_to_tolerance", "Virtual time to the tolerance", unless_failed(_time), "s"),
    Quantity(
        "sweeps_to_tolerance",
        "Sweeps to the tolerance",
        unless_failed(_if_converged("sweeps")),
        "sweeps",
    ),
    Quantity(
        "energy_to_tolerance",
        "Energy to the tolerance",
        unless_failed(lambda summary: summary.energy if summary.status == "converged" else None),
        "J",
    ),
    Quantity(
        "gain",
        "Speed against the synchronous baseline",
        unless_failed(_gain),
        "times as fast",
    ),
)

MARKED = 200  # runs with more processors are drawn as lines


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of relaxations."""
    # Processors that compute all the time have nothing else to show.
    busy = all(share > FULL for run in runs for share in _shares(run).values())
    shares = utilisation_chart(runs, _shares, "Utilisation of processors")
    return {
        "Convergence": [_residual(runs, _time_axis()), _residual(runs, _step_axis(runs))],
        "Processors": [_updates(runs), _staleness(runs)],
        "Where the time went": [None if busy else shares],
        "First updates": [] if busy else first_timelines(runs, partial(first_spans, phases=PHASES)),
    }


def _updates(runs: Sequence[Run]) -> Chart:
    marks: list[Mark] = []
    for run in runs:
        series = run.series("updates")
        if not len(series):
            continue
        numbers = np.array([_number(node) for node in series.node.tolist()])
        order = np.argsort(numbers, kind="stable")
        x, y = numbers[order], series.value[order]
        if len(x) > MARKED:
            marks.append(Curve(x, y, run.index, "updates"))
            continue
        labels = [
            f"processor {number:.0f}: {count:,.0f} updates"
            for number, count in zip(x.tolist(), y.tolist(), strict=True)
        ]
        marks.append(Dots(x, y, tuple(labels), run.index, "updates"))
    return Chart(
        name="updates",
        title="Updates of each processor",
        x=Axis("processor"),
        y=Axis("updates", from_zero=True),
        marks=tuple(marks),
    )


def _number(node: str) -> float:
    digits = node.removeprefix(node_group(node)).strip("_- ")
    return float(digits) if digits.isdigit() else 0.0


def _staleness(runs: Sequence[Run]) -> Chart:
    rows = histograms_by_run(
        runs, lambda run: counted_histogram(run.numbers.get("staleness") or {})
    )
    last_bins = {run: bins[0][-1] for _, run, bins in rows[0]}
    beyond = any(
        run.index in last_bins and (run.numbers.staleness.max or 0) > last_bins[run.index]
        for run in runs
    )
    caption = "The last bin includes all larger values." if beyond else ""
    return histogram_chart(
        "staleness", "Staleness of updates", "staleness (updates)", "updates", *rows, caption
    )


FULL = 0.995  # share of the time


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
SYNCHRONOUS = 1  # colour of the synchronous iteration, in a chart of one run
MOST_EVENTS = 400  # of a kind and a run; of more, an evenly spread selection is drawn
QUIET_CHECKPOINTS = 30  # more hide the curve, and are initially switched off

ScaledAxis = tuple[Axis, Callable[[Run, "Series"], Any]]
"""An axis, and what of a series of a run stands on it."""


def _time_axis() -> ScaledAxis:
    return Axis("virtual time", "s", switch="time"), lambda run, values: values.virtual_time


def _step_axis(runs: Sequence[Run]) -> ScaledAxis:
    """A sweep is as many relaxations as there are unknowns; where an unfinished run does not state
    their number, the axis counts relaxations.
    """
    known = all(run.numbers.get("unknowns") for run in runs)
    return Axis(
        "sweeps" if known else "relaxations"
    ), lambda run, values: values.step / float(run.numbers["unknowns"] if known else 1)


def _residual(runs: Sequence[Run], scaled: ScaledAxis) -> Chart | None:
    axis, x_of = scaled
    marks: list[Mark] = []
    begin, end = math.inf, 0.0
    for metric, series in CURVES.items():
        for run in runs:
            values = _positive(run.series(metric))
            if len(values):
                x = x_of(run, values)
                begin, end = min(begin, float(x.min())), max(end, float(x.max()))
                alone = metric == "synchronous_residual" and len(runs) == 1
                color, faint = SYNCHRONOUS if alone else None, metric != "residual" and not alone
                marks.append(Curve(x, values.value, run.index, series, faint, color))
    if not marks:
        return None
    tolerances = {run.numbers.get("tolerance") for run in runs} - {None}
    for tolerance in sorted(tolerances, reverse=True):
        marks.append(Level(tolerance, begin, end, f"tolerance {tolerance:.3g}", "tolerance"))
    hidden = {CURVES["error"], CURVES["synchronous_residual"]} if len(runs) > 2 else set()
    for metric, (series, symbol) in EVENTS.items():
        for run in runs:
            if len(events := _positive(run.series(metric))):
                marks.append(_events(run, events, metric, x_of(run, events), series, symbol))
            if metric == "checkpoint" and len(events) > QUIET_CHECKPOINTS:
                hidden.add(series)
    for run in runs:
        values = _positive(run.series("residual"))
        if run.status == "diverged" and len(values):
            at = x_of(run, values)[-1:], values.value[-1:]
            marks.append(Dots(*at, ("diverged",), run.index, "diverged", "cross"))
    return Chart(
        name="residual_time" if axis.unit else "residual_sweeps",
        title=f"Residual against {axis.label}",
        x=axis,
        y=Axis("residual", log=True, switch="residual"),
        marks=tuple(marks),
        hidden=frozenset(hidden),
    )


def _events(run: Run, events: Series, metric: str, x: Any, series: str, symbol: Symbol) -> Dots:
    faults = (run.numbers.get("faults") or {}).get("events") or []
    names = [metric] * len(events)
    if metric == "fault" and len(faults) == len(events):
        names = [str(fault.get("what")) for fault in faults]
    chosen = np.linspace(0, len(x) - 1, min(len(x), MOST_EVENTS)).round().astype(np.intp)
    labels = tuple(f"{names[i]}: residual {events.value[i]:.3g}" for i in chosen.tolist())
    return Dots(x[chosen], events.value[chosen], labels, run.index, series, symbol)


def _positive(series: Series) -> Series:
    shown = np.isfinite(series.value) & (series.value > 0)
    return series if shown.all() else series.where(shown)


VIEW = View(
    figures=FIGURES,
    sections=sections,
    quantities=lambda trials: QUANTITIES,
    compare=lambda trials: best_sentence(trials, "Converges soonest with", _time, format_duration),
    subject=_subject,
    name=_name,
    so_far=_so_far,
    remarks=_remarks,
    decisive=frozenset(
        {
            *("Residual", "Error", "Sweeps", "Virtual time", "Synchronous", "Energy"),
            *("Largest staleness", "faults", "checkpoints", "caution", "barrier"),
        }
    ),
    endings=dict.fromkeys(("diverged", "stopped"), sentence),
)
