"""How runs of one kind are shown: in a terminal, on the page, in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paracosm.cluster.description import link_in_words
from paracosm.report.chart import Section
from paracosm.report.run import Run
from paracosm.results import Summary

if TYPE_CHECKING:
    from paracosm.studies import Series

__all__ = ["SUCCESSES", "Ending", "Figure", "Table", "View", "cluster_text", "figure", "trouble"]

SUCCESSES = frozenset({"done", "converged"})
"""The statuses of runs that ended as they should."""

Figure = Callable[[Any], str | None]
"""Returns the text of a key figure from a summary, with its unit; None where it has none."""

Ending = Callable[[Any], str]
"""Returns a sentence, from a summary, on why a run ended as it did."""

Known = Mapping[str, Any]
"""The arguments of a run and its summary, by their names."""


@dataclass(frozen=True)
class Table:
    """Rows of text under headers: what is to be read line by line, not looked at.

    Attributes:
        title: what they are.
        header: one word for each column; the first column is flush left, the others right.
        rows: as many texts each.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _durations(summary: Any) -> dict[str, str]:
    return dict(summary.get("durations") or {})


@dataclass(frozen=True)
class View:
    """What is said of runs of one kind, and drawn.

    Attributes:
        figures: label -> key figure, in the order in which they are shown.
        sections: returns the charts of runs, by section.
        subject: says what a run is about.
        name: names a run.
        so_far: returns what a summary would say, from the metrics of an unfinished run.
        origins: returns where durations, and other numbers, come from: measured, modelled, ...
        remarks: returns what else is worth a line, by what it is about.
        tables: returns what is worth a table.
        endings: status -> a sentence on why a run ended so.
    """

    figures: Mapping[str, Figure]
    sections: Callable[[Sequence[Run]], list[Section]] = lambda runs: []
    subject: Callable[[Known], str | None] = lambda known: None
    name: Callable[[Known], str | None] = lambda known: None
    so_far: Callable[[Callable[[str], Series]], dict[str, Any]] = lambda series: {}
    origins: Callable[[Any], dict[str, str]] = _durations
    remarks: Callable[[Any], dict[str, str]] = lambda summary: {}
    tables: Callable[[Any], list[Table]] = lambda summary: []
    endings: Mapping[str, Ending] = field(default_factory=dict)


def figure(key: str, form: Callable[[Any], str]) -> Figure:
    """Return the figure that writes the summary's `key` in the form `form`."""

    def write(summary: Mapping[str, Any]) -> str | None:
        value = summary.get(key)
        return None if value is None else form(value)

    return write


def trouble(view: View, summary: Summary) -> str | None:
    """Return one sentence on why a run did not end as it should; None if it did."""
    if summary.status in SUCCESSES:
        return None
    if (ending := view.endings.get(summary.status)) is not None:
        return ending(summary)
    match summary.status:
        case "unfinished":
            return (
                "The run is not finished: it is still going on, or it was killed. "
                "This is what it had written."
            )
        case "interrupted":
            return "The run was interrupted before its end."
    return f"The run ended as: {summary.status}."


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
