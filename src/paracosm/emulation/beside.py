"""A prediction of the same job, shown beside the emulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.results import EmulationSummary

__all__ = ["beside", "predicted_time"]


def predicted_time(folder: Path) -> float:
    """Return the iteration time in the summary of a run folder, in seconds.

    Args:
        folder: a finished run of `predict`, or of `emulate`.

    Raises:
        InputError: it is not the folder of a finished run, or the run has no iteration time.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{folder}: not the folder of a finished run") from None
    found = summary.get("iteration_time")
    if isinstance(found, dict):
        found = found.get("median")
    if not isinstance(found, int | float) or not found > 0:
        raise InputError(f"{folder}: its summary has no iteration_time to show beside")
    return float(found)


def beside(folder: Path, predicted: float, summary: EmulationSummary) -> dict[str, Any]:
    """Return the predicted iteration time, and the emulated one over it.

    Args:
        folder: whose prediction it is.
        predicted: seconds.
        summary: of the emulation.
    """
    time = summary.iteration_time
    emulated = None if time is None else time.median
    return {
        "run": str(folder),
        "iteration_time": predicted,
        "ratio": None if emulated is None else emulated / predicted,
    }
