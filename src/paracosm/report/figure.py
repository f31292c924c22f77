"""One key figure of a run: how it is taken from the summary, rounded, with its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paracosm.cluster.description import link_in_words

__all__ = ["Ending", "Figure", "cluster_text", "figure"]

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


def cluster_text(cluster: Mapping[str, Any]) -> str:
    """Say what a cluster is, as `describe_cluster` describes it: values with their units."""
    parts = []
    for name, value in cluster.items():
        if isinstance(value, Mapping) and "sharing" in value:
            value = f"of {link_in_words(value)}"
        elif isinstance(value, Mapping):
            value = ", ".join(f"{ends} ({link_in_words(link)})" for ends, link in value.items())
        parts.append(f"{name.replace('_', ' ')} {value}")
    return "; ".join(parts)
