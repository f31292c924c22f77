"""The key numbers of runs as a reader wants them: named, rounded, with units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.report.kinds import view_of
from paracosm.report.run import Run
from paracosm.units import format_duration

__all__ = ["key_numbers"]

LEVELS = (0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def key_numbers(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return label -> one text for each run, empty where it has no such number.

    A label that no run has a number for is left out.
    """
    table: dict[str, list[str]] = {}
    for label, write in view_of(runs[0].numbers).figures.items():
        texts = [write(run.numbers) for run in runs]
        if any(text is not None for text in texts):
            table[label] = [text or "" for text in texts]
        if label == "Virtual time" and (level := _common_level(runs)) is not None:
            table[f"Virtual time to {level:.0%} accuracy"] = [_time_to(run, level) for run in runs]
    return table


def _common_level(runs: Sequence[Run]) -> float | None:
    """Return the highest round accuracy that two of the runs reached, or the only run."""
    best = sorted((_best(run) for run in runs), reverse=True)
    reached = best[min(1, len(best) - 1)]
    return next((level for level in LEVELS if level <= reached), None)


def _best(run: Run) -> float:
    values = run.series("accuracy").value
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0


def _time_to(run: Run, level: float) -> str:
    accuracy = run.series("accuracy")
    reached = np.flatnonzero(accuracy.value >= level)
    return format_duration(float(accuracy.virtual_time[reached[0]])) if len(reached) else "never"
