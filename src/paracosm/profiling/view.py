"""What is said of profiled ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paracosm.units import format_duration


def sentence(summary: Mapping[str, Any]) -> str:
    """Say how many ops of a summary were timed, and what an iteration took."""
    time = summary.get("iteration_time")
    iteration = "" if time is None else f"; an iteration takes {format_duration(time)}"
    return f"{summary['distinct_ops']:,} ops, {summary['timings']:,} timings{iteration}."
