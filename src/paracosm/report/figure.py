"""One key figure of a run: how it is taken from the summary, rounded, with its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Ending", "Figure", "figure"]

Figure = Callable[[Mapping[str, Any]], str | None]
"""Returns the text of a figure from a summary; None where it has no such number."""

Ending = Callable[[Mapping[str, Any]], str]
"""Returns a sentence, from a summary, on why a run ended as it did."""


def figure(key: str, form: Callable[[Any], str]) -> Figure:
    """Return the figure that writes `summary[key]` in the form `form`."""

    def write(summary: Mapping[str, Any]) -> str | None:
        value = summary.get(key)
        return None if value is None else form(value)

    return write
