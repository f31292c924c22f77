"""What is said of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.report.figure import Ending, Figure, figure
from paracosm.report.table import Table
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.study.series import Series


def _unchanged(summary: Mapping[str, Any]) -> str | None:
    """Say what came of the run without the changes."""
    before = summary.get("unchanged")
    if not isinstance(before, Mapping):
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


def subject(known: Mapping[str, Any]) -> str | None:
    """Say what is trained."""
    model, data = known.get("model"), known.get("data")
    return None if model is None or data is None else f"{model} on {data}"


def name(known: Mapping[str, Any]) -> str | None:
    """Name the run by algorithm and workers."""
    what, workers = known.get("algorithm"), known.get("workers")
    if what is None or workers is None:
        return None if what is None else str(what)
    return f"{what}, {workers} worker{'' if workers == 1 else 's'}"


def so_far(series: Callable[[str], Series]) -> dict[str, Any]:
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


def _diverged(summary: Mapping[str, Any]) -> str:
    """Say which gradient made the loss explode."""
    divergence = summary.get("divergence")
    if not isinstance(divergence, Mapping):
        return "The loss exploded."
    loss = divergence.get("loss")
    finite = loss is not None and math.isfinite(loss)
    became = f"was {loss:.4g}" if finite else "was not a finite number"
    return (
        f"The run diverged at update {divergence.get('update')}: the minibatch loss {became}, on a "
        f"gradient of {divergence.get('worker')} with staleness {divergence.get('staleness')}."
    )


ENDINGS: Mapping[str, Ending] = {"diverged": _diverged}


def origins(summary: Mapping[str, Any]) -> dict[str, str]:
    """Say how each kind of duration, and the gradients, were obtained."""
    lookahead = summary.get("lookahead")
    return {**(summary.get("durations") or {}), **({"lookahead": lookahead} if lookahead else {})}


def remarks(summary: Mapping[str, Any]) -> dict[str, str]:
    """Say what was changed."""
    changes = summary.get("what_if")
    return {"what if": "; ".join(changes)} if changes else {}


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """Return none."""
    return []
