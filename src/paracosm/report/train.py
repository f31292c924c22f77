"""Texts and charts of training runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.report.chart import (
    WIDE,
    extremes,
    histogram,
    histogram_height,
    overview_of,
    shade_of,
    shown_sections,
    style_of,
    time_unit,
)
from paracosm.report.shared_charts import (
    counted,
    histograms_by_run,
    histograms_chart,
    staleness_of,
    utilisation_chart,
)
from paracosm.report.sweep_charts import sweep_charts
from paracosm.report.sweeps import varied_of
from paracosm.report.timeline_charts import first_timelines, timeline_chart
from paracosm.report.train_clients import client_charts
from paracosm.report.train_sweep import sweep_sentence, training_metrics, trials_of
from paracosm.report.train_words import is_at_chance, training_sentence
from paracosm.results import TrainingSummary
from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Section, Style
from paracosm.results.view import Figure, Run, Verdict, View, figure
from paracosm.units import format_duration, format_energy, format_size

if TYPE_CHECKING:
    from paracosm.results.metrics import Series


def _target(summary: TrainingSummary) -> str | None:
    if summary.target is None:
        return None
    if summary.reached_at is None:
        best = "" if summary.best is None else f"; best {summary.best:.4g}"
        return f"{summary.target}: not reached{best}"
    after = format_duration(summary.reached_at)
    return f"{summary.target}: reached after {after}, {summary.reached_updates:,} updates"


def _failures(summary: TrainingSummary) -> str | None:
    found = summary.failures
    if found is None:
        return None
    shares = {"lost": found.lost, "saving": found.saving, "restarting": found.restarting}
    spent = ", ".join(f"{share:.1%} {name}" for name, share in shares.items())
    often = {"the job stopped": found.stops, "single workers failed": found.failures}
    often |= {"workers went": found.absences}
    often |= {"nodes were slow": found.slowdowns or 0}
    often |= {"messages were lost": found.lost_messages or 0}
    struck = [f"{what} {_times(count)}" for what, count in often.items() if count]
    return (
        f"{found.effective:.1%} of the time effective ({spent}); "
        f"{', '.join(struck) or 'nothing failed'}; "
        f"{found.goodput:,.4g} of {found.throughput:,.4g} steps/s last"
    )


def _compression(summary: TrainingSummary) -> str | None:
    found = summary.compression
    if found is None or summary.bytes_sent is None:
        return None
    sizes = f"{format_size(found.message)} in place of {format_size(found.uncompressed)}"
    sent = format_size(summary.bytes_sent)
    return f"{found.codec}: {sizes} ({found.ratio:.3g} times less); {sent} sent in all"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _unchanged(summary: TrainingSummary) -> str | None:
    before = summary.unchanged
    if before is None:
        return None
    shown = ("Virtual time", "Examples/s", "Mean staleness", "Last test accuracy")
    figures = ((label.lower(), FIGURES[label](before)) for label in shown)
    return ", ".join(f"{label} {text}" for label, text in figures if text is not None)


def _clients(summary: Mapping[str, Any]) -> str | None:
    found = summary.get("clients")
    if found is None:
        return None
    lost = {"dropped out": "dropped_out", "gone": "gone", "late": "late"}
    said = [f"{found[key]:,} {word}" for word, key in lost.items() if found[key]]
    took = f"{found['took_part']:,} of {found['clients']:,} took part, {found['participations']:,}"
    return ", ".join([f"{took} times", *said])


FIGURES: Mapping[str, Figure] = {
    "Target": _target,
    "Updates": figure("updates", "{:,}".format),
    "Last training loss": figure("final_loss", "{:.4g}".format),
    "Last test accuracy": figure("final_accuracy", "{:.1%}".format),
    "Mean staleness": figure("mean_staleness", "{:.3g}".format),
    "Virtual time": figure("virtual_time", format_duration),
    "Energy": figure("energy", format_energy),
    "Examples/s": figure("examples_per_second", "{:,.0f}".format),
    "Clients": _clients,
    "Failures": _failures,
    "Compression": _compression,
    "Unchanged": _unchanged,
    "Wall time": figure("wall_time", format_duration),
}


def _subject(known: Mapping[str, Any]) -> str | None:
    model, data = known.get("model"), known.get("data")
    return None if model is None or data is None else f"{model} on {data}"


def _name(known: Mapping[str, Any]) -> str | None:
    what, workers = known.get("algorithm"), known.get("workers")
    if what is None or workers is None:
        return None if what is None else str(what)
    return f"{what}, {workers} worker{'' if workers == 1 else 's'}"


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    newest = [known for metric in ("staleness", "loss") if len(known := series(metric))]
    if newest:
        found["updates"] = max(int(each.step[-1]) for each in newest)
        found["virtual_time"] = max(float(each.virtual_time[-1]) for each in newest)
        found["wall_time"] = max(float(each.wall_time[-1]) for each in newest)
    for key, metric in (("final_loss", "loss"), ("final_accuracy", "accuracy")):
        if len(known := series(metric)):
            found[key] = float(known.value[-1])
    if len(staleness := series("staleness")):
        found["mean_staleness"] = float(np.mean(staleness.value))
    return found


def _doubt(summary: TrainingSummary) -> Verdict | None:
    if not is_at_chance(summary):
        return None
    return Verdict("warning", "at chance", training_sentence(summary))


def _remarks(summary: TrainingSummary) -> dict[str, str]:
    said = {"what if": "; ".join(summary.what_if)} if summary.what_if else {}
    more = {"learning rate": summary.learning_rate, "privacy": summary.privacy}
    return said | {what: how for what, how in more.items() if how is not None}


def _styles(runs: Sequence[Run]) -> list[Style]:
    """Distinguish algorithms by hue and numbers of workers by shade, where runs differ in them."""
    kinds = [(each.get("algorithm"), each.get("workers")) for each in varied_of(runs)]
    if len(set(kinds)) < 2:
        return [style_of(run.index) for run in runs]
    hues = list(dict.fromkeys(algorithm for algorithm, _ in kinds))
    numbers = sorted({workers for _, workers in kinds if workers is not None})
    found: list[Style] = []
    for place, (algorithm, workers) in enumerate(kinds):
        rank = len(numbers) - 1 if workers is None else numbers.index(workers)
        alike = kinds[:place].count((algorithm, workers))
        found.append(Style(hues.index(algorithm), shade_of(rank, len(numbers)), alike))
    return found


def _against_varied(runs: Sequence[Run]) -> list[Chart]:
    trials = trials_of(runs)
    return sweep_charts(trials, training_metrics(trials))


LOSSES = {"minibatch_loss": "minibatch loss", "test_loss": "test loss", "loss": "training loss"}
WIDE_RANGE = 30.0  # factor of the loss above which its axis is logarithmic


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    parts: list[tuple[str, list[Chart | None]]] = [
        (
            "Convergence",
            [
                *(_loss(runs, "updates"), _loss(runs, "time"), _accuracy(runs), _staleness(runs)),
                _staleness_by_tensor(runs),
            ],
        ),
        ("Clients", client_charts(runs)),
        ("Where the time went", [utilisation_chart(runs)]),
        ("First rounds", first_timelines(runs, timeline_chart)),
    ]
    return shown_sections(parts)


def _loss(runs: Sequence[Run], against: str) -> Chart | None:
    unit = _time_unit(runs)
    marks: list[Curve | Dots] = []
    for metric, series in LOSSES.items():
        for run in runs:
            if len(values := run.series(metric)):
                x = _x(values, against, unit)
                kept = extremes(values.value)
                faint = metric == "minibatch_loss"
                marks.append(Curve(x[kept], values.value[kept], run.index, series, faint))
    marks += [mark for run in runs if (mark := _divergence(run, against, unit)) is not None]
    if not marks:
        return None
    hidden = {"test loss"} if any(mark.series == "training loss" for mark in marks) else set()
    if len(runs) > 2:
        hidden |= {"minibatch loss"} if hidden else set()
    shown = np.concatenate([mark.y for mark in marks if mark.series not in hidden])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    is_wide = len(shown) > 0 and bool(shown.max() > WIDE_RANGE * shown.min())
    return Chart(
        name=f"loss_{against}",
        title="Loss against updates" if against == "updates" else "Loss against virtual time",
        x=Axis("updates") if against == "updates" else _time_axis(runs),
        y=Axis("loss", log=is_wide, switch="loss"),
        marks=tuple(marks),
        hidden=frozenset(hidden),
    )


def _divergence(run: Run, against: str, unit: tuple[float, str]) -> Dots | None:
    if run.status != "diverged":
        return None
    for metric in ("loss", "minibatch_loss"):
        values = run.series(metric)
        finite = np.flatnonzero(np.isfinite(values.value))
        if len(finite):
            last = finite[-1:]
            x, y = _x(values, against, unit)[last], values.value[last]
            return Dots(x, y, ("diverged",), run.index, "diverged", symbol="cross")
    return None


def _accuracy(runs: Sequence[Run]) -> Chart:
    unit = _time_unit(runs)
    curves = [
        Curve(_x(values, "time", unit)[kept], values.value[kept], run.index, "test accuracy")
        for run in runs
        if len(values := run.series("accuracy"))
        for kept in [extremes(values.value)]
    ]
    return Chart(
        name="accuracy_time",
        title="Accuracy against virtual time",
        x=_time_axis(runs),
        y=Axis("test accuracy", percent=True),
        marks=tuple(curves),
        height=histogram_height(len(runs)),
    )


def _staleness(runs: Sequence[Run]) -> Chart:
    histograms = {
        run.index: histogram(staleness.value)
        for run in runs
        if len(staleness := run.series("staleness"))
    }
    return histograms_by_run(
        runs, histograms, staleness_of("gradients"), histogram_height(len(runs))
    )


def _staleness_by_tensor(runs: Sequence[Run]) -> Chart | None:
    by_tensor = runs[0].numbers.get("staleness") or {}
    if len(runs) > 1 or len(by_tensor) < 2:
        return None
    ordered = sorted(by_tensor.items(), key=lambda each: -(each[1].mean or 0.0))
    rows = [
        (name, runs[0].index, found)
        for name, each in ordered
        if (found := counted(each)) is not None
    ]
    title = "Staleness by tensor"
    measure = replace(staleness_of("gradients"), name="staleness_tensor", title=title)
    return histograms_chart(rows, measure, "tensor", histogram_height(len(rows)))


def _x(values: Series, against: str, unit: tuple[float, str]) -> Floats:
    if against == "updates":
        return values.step.astype(np.float64)
    return values.virtual_time * unit[0]


def _time_axis(runs: Sequence[Run]) -> Axis:
    """Return the axis of virtual time, logarithmic where run times differ by a factor of ten."""
    ends = [end for end in _ends(runs) if end > 0]
    log = bool(ends) and max(ends) >= WIDE * min(ends)
    return Axis(f"virtual time ({_time_unit(runs)[1]})", log=log, switch="time")


def _time_unit(runs: Sequence[Run]) -> tuple[float, str]:
    return time_unit(max(_ends(runs)))


def _ends(runs: Sequence[Run]) -> list[float]:
    return [float(run.numbers.get("virtual_time") or 0.0) for run in runs]


VIEW = View(
    figures=FIGURES,
    sections=sections,
    overview=lambda runs: overview_of(_against_varied(runs)),
    styles=_styles,
    compare=lambda runs: sweep_sentence(trials_of(runs)),
    subject=_subject,
    name=_name,
    so_far=_so_far,
    origins=lambda summary: (
        {**(summary.durations or {})}
        | ({"lookahead": summary.lookahead} if summary.lookahead else {})
    ),
    remarks=_remarks,
    endings=dict.fromkeys(("diverged", "stopped", "interrupted"), training_sentence),
    doubt=_doubt,
)
