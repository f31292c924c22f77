"""What is said of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.report.train import sections
from paracosm.report.view import Figure, View, figure
from paracosm.results import TrainingSummary
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.studies import Series


def _unchanged(summary: TrainingSummary) -> str | None:
    """Say what came of the run without the changes."""
    before = summary.unchanged
    if before is None:
        return None
    shown = ("Virtual time", "Examples/s", "Mean staleness", "Last test accuracy")
    figures = ((label.lower(), FIGURES[label](before)) for label in shown)
    return ", ".join(f"{label} {text}" for label, text in figures if text is not None)


FIGURES: Mapping[str, Figure] = {
    "Updates": figure("updates", "{:,}".format),
    "Last training loss": figure("final_loss", "{:.4g}".format),
    "Last test accuracy": figure("final_accuracy", "{:.1%}".format),
    "Mean staleness": figure("mean_staleness", "{:.3g}".format),
    "Virtual time": figure("virtual_time", format_duration),
    "Examples/s": figure("examples_per_second", "{:,.0f}".format),
    "Unchanged": _unchanged,
    "Wall time": figure("wall_time", format_duration),
}


def _subject(known: Mapping[str, Any]) -> str | None:
    """Say what is trained."""
    model, data = known.get("model"), known.get("data")
    return None if model is None or data is None else f"{model} on {data}"


def _name(known: Mapping[str, Any]) -> str | None:
    """Name the run by algorithm and workers."""
    what, workers = known.get("algorithm"), known.get("workers")
    if what is None or workers is None:
        return None if what is None else str(what)
    return f"{what}, {workers} worker{'' if workers == 1 else 's'}"


def _so_far(series: Callable[[str], Series]) -> dict[str, Any]:
    """Return what the metrics of an unfinished run say."""
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


def _diverged(summary: TrainingSummary) -> str:
    divergence = summary.divergence
    if divergence is None:
        return "The loss exploded."
    loss = divergence.get("loss")
    finite = loss is not None and math.isfinite(loss)
    became = f"was {loss:.4g}" if finite else "was not a finite number"
    return (
        f"The run diverged at update {divergence.get('update')}: the minibatch loss {became}, on a "
        f"gradient of {divergence.get('worker')} with staleness {divergence.get('staleness')}."
    )


def _origins(summary: TrainingSummary) -> dict[str, str]:
    lookahead = {"lookahead": summary.lookahead} if summary.lookahead else {}
    return {**(summary.durations or {}), **lookahead}


def _remarks(summary: TrainingSummary) -> dict[str, str]:
    return {"what if": "; ".join(summary.what_if)} if summary.what_if else {}


VIEW = View(
    figures=FIGURES,
    sections=sections,
    subject=_subject,
    name=_name,
    so_far=_so_far,
    origins=_origins,
    remarks=_remarks,
    endings={"diverged": _diverged},
)
