"""What a page shows of training runs: key figures, curves, staleness, where the time went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.results import TrainingSummary
from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Sections, Style
from paracosm.results.charts import (
    counted_histogram,
    histogram,
    histogram_chart,
    histograms_by_run,
    is_wide,
    shade_of,
)
from paracosm.results.comparison import varied_of
from paracosm.results.node_charts import (
    Shares,
    first_spans,
    first_timelines,
    node_group,
    utilisation_chart,
)
from paracosm.results.view import Figure, Known, Run, Verdict, View, figure, template
from paracosm.training.client_charts import client_charts
from paracosm.training.comparison import compare, quantities, trials_of
from paracosm.training.sentence import is_at_chance, sentence
from paracosm.units import format_duration, format_size

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
    cost = summary.failures
    if cost is None:
        return None
    shares = {"lost": cost.lost, "saving": cost.saving, "restarting": cost.restarting}
    spent = ", ".join(f"{share:.1%} {name}" for name, share in shares.items())
    counts = {
        "the job stopped": cost.stops,
        "single workers failed": cost.failures,
        "workers went": cost.absences,
        "nodes were slow": cost.slowdowns,
        "messages were lost": cost.lost_messages,
    }
    failures = [f"{cause} {_times(count)}" for cause, count in counts.items() if count]
    return (
        f"{cost.effective:.1%} of the time effective ({spent}); "
        f"{', '.join(failures) or 'nothing failed'}; "
        f"{cost.goodput:,.4g} of {cost.throughput:,.4g} steps/s last"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _compression(summary: TrainingSummary) -> str | None:
    codec = summary.compression
    if codec is None or summary.bytes_sent is None:
        return None
    sizes = f"{format_size(codec.message)} in place of {format_size(codec.uncompressed)}"
    sent = format_size(summary.bytes_sent)
    return f"{codec.codec}: {sizes} ({codec.ratio:.3g} times less); {sent} sent in all"


def _unchanged(summary: TrainingSummary) -> str | None:
    before = summary.unchanged
    if before is None:
        return None
    shown = ("Virtual time", "Examples/s", "Mean staleness", "Last test accuracy")
    figures = ((label.lower(), FIGURES[label](before)) for label in shown)
    return ", ".join(f"{label} {text}" for label, text in figures if text is not None)


def _clients(summary: TrainingSummary) -> str | None:
    clients = summary.clients
    if clients is None:
        return None
    lost = {"dropped out": clients.dropped_out, "gone": clients.gone, "late": clients.late}
    took_part = f"{clients.took_part:,} of {clients.clients:,} took part"
    parts = [took_part, f"{clients.participations:,} times"]
    if clients.fairness is not None:
        parts.append(f"fairness {clients.fairness:.3g}")
    return ", ".join([*parts, *(f"{count:,} {how}" for how, count in lost.items() if count)])


def _by_client(summary: TrainingSummary) -> str | None:
    quality = summary.by_client
    if quality is None:
        return None
    if quality.accuracy is not None:
        spread, name, write = quality.accuracy, "accuracy", "{:.1%}".format
    else:
        spread, name, write = quality.loss, "loss", "{:.3g}".format
    some = "" if quality.measured == quality.clients else f" of {quality.measured:,} clients"
    even = "" if spread.fairness is None else f", fairness {spread.fairness:.3g}"
    return (
        f"{name} {write(spread.mean)} (standard deviation {write(spread.deviation)}){some}, worst "
        f"tenth {write(spread.worst_tenth)}, best {write(spread.best_tenth)}{even}, on each one's "
        f"{quality.examples} examples"
    )


FIGURES: Mapping[str, Figure] = {
    "Target": _target,
    "Updates": figure("updates", "n"),
    "Last training loss": figure("final_loss", "{:.4g}".format),
    "Last test accuracy": figure("final_accuracy", "%"),
    "Mean staleness": figure("mean_staleness", "{:.3g}".format),
    "Virtual time": figure("virtual_time", "s"),
    "Energy": figure("energy", "J"),
    "Examples/s": figure("examples_per_second", "{:,.0f}".format),
    "Clients": _clients,
    "By client": _by_client,
    "Failures": _failures,
    "Compression": _compression,
    "Unchanged": _unchanged,
    "Wall time": figure("wall_time", "s"),
}

LEVELS = (0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def _time_to_accuracy(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the times to the highest round accuracy that two of the runs reached, or the only
    run.
    """
    accuracies = [run.series("accuracy") for run in runs]
    best = sorted((np.nanmax(accuracy.value, initial=0.0) for accuracy in accuracies), reverse=True)
    reached = best[min(1, len(best) - 1)]
    level = next((level for level in LEVELS if level <= reached), None)
    if level is None:
        return {}
    times = [accuracy.virtual_time[accuracy.value >= level] for accuracy in accuracies]
    texts = [format_duration(float(time[0])) if len(time) else "never" for time in times]
    return {f"Virtual time to {level:.0%} accuracy": texts}


def _name(known: Known) -> str | None:
    algorithm, workers = known.get("algorithm"), known.get("workers")
    if algorithm is None or workers is None:
        return None if algorithm is None else str(algorithm)
    return f"{algorithm}, {workers} worker{'' if workers == 1 else 's'}"


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if newest := [values for name in ("staleness", "loss") if len(values := series(name))]:
        known["updates"] = max(int(values.step[-1]) for values in newest)
        known["virtual_time"] = max(float(values.virtual_time[-1]) for values in newest)
        known["wall_time"] = max(float(values.wall_time[-1]) for values in newest)
    for key, name in (("final_loss", "loss"), ("final_accuracy", "accuracy")):
        if len(values := series(name)):
            known[key] = float(values.value[-1])
    if len(staleness := series("staleness")):
        known["mean_staleness"] = float(np.mean(staleness.value))
    return known


def _doubt(summary: TrainingSummary) -> Verdict | None:
    return Verdict("warning", "at chance", sentence(summary)) if is_at_chance(summary) else None


def _remarks(summary: TrainingSummary) -> dict[str, str | None]:
    return {"learning rate": summary.learning_rate, "privacy": summary.privacy}


def _origins(summary: TrainingSummary) -> dict[str, str]:
    lookahead = {"lookahead": summary.lookahead} if summary.lookahead else {}
    return {**(summary.durations or {}), **lookahead}


def _styles(runs: Sequence[Run]) -> list[Style] | None:
    """Distinguish algorithms by hue and numbers of workers by shade and dashes, where runs differ
    in them.
    """
    kinds = [(varied.get("algorithm"), varied.get("workers")) for varied in varied_of(runs)]
    if len(set(kinds)) < 2:
        return None
    hues = list(dict.fromkeys(algorithm for algorithm, _ in kinds))
    numbers = sorted({workers for _, workers in kinds if workers is not None})
    styles = []
    for place, (algorithm, workers) in enumerate(kinds):
        rank = len(numbers) - 1 if workers is None else numbers.index(workers)
        repeats = kinds[:place].count((algorithm, workers))
        dash = len(numbers) - 1 - rank + repeats
        styles.append(Style(hues.index(algorithm), shade_of(rank, len(numbers)), dash))
    return styles


LOSSES = {"minibatch_loss": "minibatch loss", "test_loss": "test loss", "loss": "training loss"}
WIDE_RANGE = 30.0  # factor of the loss above which its axis is logarithmic


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of training runs."""
    time = _time_axis(runs)
    return {
        "Convergence": [
            _loss(runs, Axis("updates")),
            _loss(runs, time),
            Chart(
                name="accuracy_time",
                title="Accuracy against virtual time",
                x=time,
                y=Axis("test accuracy", percent=True),
                marks=tuple(_curves(runs, "accuracy", "test accuracy", time)),
            ),
            _staleness(runs),
            _staleness_by_tensor(runs),
        ],
        "Clients": client_charts(runs),
        "Where the time went": [
            utilisation_chart(runs, recorded_shares, "Utilisation of workers and ports")
        ],
        "First rounds": first_timelines(runs, first_spans),
    }


def _time_axis(runs: Sequence[Run]) -> Axis:
    """Return the axis of virtual time, logarithmic where run times differ by a factor of ten."""
    log = is_wide(float(run.numbers.get("virtual_time") or 0.0) for run in runs)
    return Axis("virtual time", "s", log, switch="time")


def _x(values: Series, axis: Axis) -> Floats:
    return values.virtual_time if axis.unit == "s" else values.step.astype(np.float64)


def _curves(
    runs: Sequence[Run], metric: str, series: str, axis: Axis, *, faint: bool = False
) -> list[Curve]:
    return [
        Curve(_x(values, axis), values.value, run.index, series, faint)
        for run in runs
        if len(values := run.series(metric))
    ]


def _loss(runs: Sequence[Run], axis: Axis) -> Chart | None:
    marks: list[Curve | Dots] = []
    for metric, series in LOSSES.items():
        marks += _curves(runs, metric, series, axis, faint=metric == "minibatch_loss")
    marks += [mark for run in runs if (mark := _divergence(run, axis)) is not None]
    if not marks:
        return None
    hidden = {"test loss"} if any(mark.series == "training loss" for mark in marks) else set()
    if len(runs) > 2:
        hidden |= {"minibatch loss"} if hidden else set()
    shown = np.concatenate([mark.y for mark in marks if mark.series not in hidden])
    log = is_wide(shown[np.isfinite(shown)].tolist(), WIDE_RANGE)
    return Chart(
        name="loss_time" if axis.unit else "loss_updates",
        title=f"Loss against {axis.label}",
        x=axis,
        y=Axis("loss", log=log, switch="loss"),
        marks=tuple(marks),
        hidden=frozenset(hidden),
    )


def _divergence(run: Run, axis: Axis) -> Dots | None:
    if run.status != "diverged":
        return None
    for metric in ("loss", "minibatch_loss"):
        values = run.series(metric)
        finite = np.flatnonzero(np.isfinite(values.value))
        if len(finite):
            x, y = _x(values, axis)[finite[-1:]], values.value[finite[-1:]]
            return Dots(x, y, ("diverged",), run.index, "diverged", symbol="cross")
    return None


STALENESS = "staleness (updates)"


def _staleness(runs: Sequence[Run]) -> Chart:
    rows = histograms_by_run(
        runs, lambda run: histogram(s.value) if len(s := run.series("staleness")) else None
    )
    return histogram_chart("staleness", "Staleness of gradients", STALENESS, "gradients", *rows)


def _staleness_by_tensor(runs: Sequence[Run]) -> Chart | None:
    by_tensor = runs[0].numbers.get("staleness") or {}
    if len(runs) > 1 or len(by_tensor) < 2:
        return None
    ordered = sorted(by_tensor.items(), key=lambda item: -(item[1].mean or 0.0))
    rows = [
        (name, runs[0].index, bins)
        for name, staleness in ordered
        if (bins := counted_histogram(staleness)) is not None
    ]
    title = "Staleness by tensor"
    return histogram_chart("staleness_tensor", title, STALENESS, "gradients", rows, "tensor")


def recorded_shares(run: Run) -> Shares:
    """Return recorded utilisation and waiting, without resources unused by a group."""
    shares: dict[tuple[str, str], float] = {}
    for resource in ("compute", "send", "receive"):
        series = run.series(f"utilisation.{resource}")
        pairs = list(zip(series.node, series.value.tolist(), strict=True))
        used = {node_group(node) for node, share in pairs if share > 0}
        shares |= {(node, resource): share for node, share in pairs if node_group(node) in used}
    end = run.numbers.get("virtual_time")
    if end and len(waiting := run.series("waiting")):
        nodes, places = np.unique(waiting.node.astype(str), return_inverse=True)
        seconds = np.bincount(places, waiting.value)
        shares |= {(str(n), "wait"): float(s) / end for n, s in zip(nodes, seconds, strict=True)}
    return shares


VIEW = View(
    figures=FIGURES,
    figures_of_runs=_time_to_accuracy,
    sections=sections,
    trials=trials_of,
    quantities=quantities,
    compare=compare,
    styles=_styles,
    subject=template("{model} on {data}"),
    name=_name,
    so_far=_so_far,
    origins=_origins,
    remarks=_remarks,
    decisive=frozenset(
        {
            *("Target", "Last test accuracy", "Mean staleness", "Virtual time", "Examples/s"),
            *("Energy", "Clients", "By client", "Failures", "Compression", "Unchanged"),
            *("privacy", "start", "failures"),
        }
    ),
    endings=dict.fromkeys(("diverged", "stopped", "interrupted"), sentence),
    doubt=_doubt,
)
