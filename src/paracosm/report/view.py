"""Presentation of runs of one kind: in a terminal, on the page, in a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from paracosm.cluster.description import link_in_words
from paracosm.report.chart import Look, Section, look_of
from paracosm.results import Summary
from paracosm.timeline import Timeline

if TYPE_CHECKING:
    from paracosm.studies import RunFolder, Series

NAMES = ("algorithm", "model", "data", "method", "problem", "strategy")
"""Arguments whose values are self-explanatory."""

FIRST = ("algorithm", "workers")


def scalar_arguments(folder: RunFolder) -> dict[str, Any]:
    """Return the arguments of a run, including the seed; values that are not scalars as texts."""
    given = {**arguments_of(folder)}
    given.setdefault("seed", folder.study.get("seed"))
    return {name: _scalar(value) for name, value in given.items() if value is not None}


def arguments_of(folder: RunFolder) -> Mapping[str, Any]:
    """Return the arguments of a run, without the enclosing name of its kind."""
    asked = folder.study.get(folder.kind or "")
    return asked if isinstance(asked, Mapping) else {}


def _scalar(value: Any) -> str | int | float:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return value if isinstance(value, str | int | float) else str(value)


def differing(asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each run's arguments that differ between runs, algorithm and workers first."""
    values: dict[str, set[Any]] = {}
    for each in asked:
        for name, value in each.items():
            values.setdefault(name, set()).add(value)
    names = [name for name, found in values.items() if len(found) > 1]
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    return [{name: each[name] for name in names if name in each} for each in asked]


def design_name(design: Iterable[tuple[str, Any]]) -> str:
    """Return "asgd, 16 workers, lr 0.1"."""
    return ", ".join(argument(name, value) for name, value in design)


def argument(name: str, value: Any) -> str:
    """Return "16 workers", "lr 0.1", "asgd"."""
    if name == "workers":
        return f"{value:,} worker{'' if value == 1 else 's'}"
    if name == "what_if":
        return "unchanged" if value == "none" else str(value)
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return str(value) if name in NAMES else f"{words} {value}"


Ended = Literal["good", "warning", "bad"]


@dataclass(frozen=True)
class Verdict:
    """How a run ended."""

    level: Ended
    word: str  # its status, or a text in place of it
    why: str | None = None  # a sentence on why it failed


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a report."""

    folder: RunFolder
    name: str  # different for every run of the report
    index: int  # its place in the report
    numbers: Summary  # the summary; of an unfinished run, values known from the metrics
    verdict: Verdict
    look: Look  # in figures and tables
    _read: dict[str, Series] = field(default_factory=dict, repr=False)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The recorded spans; None without any."""
        timeline = self.folder.timeline()
        return timeline if timeline is not None and len(timeline.spans) else None

    def series(self, name: str) -> Series:
        """Return one metric; empty if the run has none of that name."""
        if name not in self._read:
            self._read[name] = self.folder.series(name)
        return self._read[name]


SUCCESSES = frozenset({"done", "converged"})
"""The statuses of successful runs."""

FAILURES = frozenset({"diverged", "failed"})
"""The statuses of failed runs; others are incomplete."""

Figure = Callable[[Any], str | None]
"""Returns the text of a key figure from a summary, with its unit; None where it has none."""

Ending = Callable[[Any], str]
"""Returns a sentence on why a run ended as it did, from its summary."""

Known = Mapping[str, Any]
"""The arguments of a run, unchecked, and its summary, by their names."""


@dataclass(frozen=True)
class Table:
    """Rows of text under headers; the first column is flush left, the others right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _durations(summary: Any) -> dict[str, str]:
    return dict(summary.get("durations") or {})


@dataclass(frozen=True)
class View:
    """The texts and charts of runs of one kind."""

    figures: Mapping[str, Figure]  # by label, in order of display
    sections: Callable[[Sequence[Run]], list[Section]] = lambda runs: []
    overview: Callable[[Sequence[Run]], Section | None] = lambda runs: None  # of several, first
    compare: Callable[[Sequence[Run]], str | None] = lambda runs: None  # several, in a sentence
    looks: Callable[[Sequence[Run]], Sequence[Look]] = lambda runs: [
        look_of(run.index) for run in runs
    ]
    subject: Callable[[Known], str | None] = lambda known: None
    name: Callable[[Known], str | None] = lambda known: None
    so_far: Callable[[Callable[[str], Series]], dict[str, Any]] = lambda series: {}  # from metrics
    origins: Callable[[Any], dict[str, str]] = _durations  # where numbers come from
    remarks: Callable[[Any], dict[str, str]] = lambda summary: {}  # by subject
    tables: Callable[[Any], list[Table]] = lambda summary: []
    endings: Mapping[str, Ending] = field(default_factory=dict)  # status -> why a run ended so
    # what is wrong with a run that ended normally: it learnt nothing, for example
    doubt: Callable[[Any], Verdict | None] = lambda summary: None


def defaults_text(summary: Summary) -> str | None:
    """Return "batch 64, dropout no": the arguments at their defaults; None where there are none."""
    given = {name.replace("_", " "): value for name, value in (summary.defaults or {}).items()}
    return ", ".join(f"{name} {value}" for name, value in given.items()) or None


def joined(values: Any, separator: str = ", ") -> str:
    """Return the texts of a list, or of the keys of a mapping; of another value, its own."""
    several = values if isinstance(values, list | tuple | dict) else [values] if values else []
    return separator.join(map(str, several))


def figure(key: str, form: Callable[[Any], str]) -> Figure:
    """Return the figure that writes the summary's `key` in the form `form`."""

    def write(summary: Mapping[str, Any]) -> str | None:
        value = summary.get(key)
        return None if value is None else form(value)

    return write


def verdict(view: View, summary: Summary) -> Verdict:
    """Return how a run ended."""
    if summary.status in SUCCESSES:
        doubt = view.doubt(summary)
        return Verdict("good", summary.status) if doubt is None else doubt
    level: Ended = "bad" if summary.status in FAILURES else "warning"
    return Verdict(level, summary.status, _why(view, summary))


TROUBLES = 4  # runs whose endings are reported one by one


def endings_of(verdicts: Sequence[Verdict]) -> str:
    """State how many runs failed or stopped early, and their statuses."""
    words = Counter(each.word for each in verdicts if each.why is not None)
    how = ", ".join(f"{count:,} {word}" for word, count in words.items())
    return f"{words.total():,} of {len(verdicts):,} runs failed or stopped early: {how}."


def _why(view: View, summary: Summary) -> str:
    if (ending := view.endings.get(summary.status)) is not None:
        return ending(summary)
    match summary.status:
        case "unfinished":
            return (
                "The run is unfinished: still running, or killed. This is what it has written so "
                "far."
            )
        case "interrupted":
            return "The run was interrupted."
    return f"The run ended with status {summary.status}."


def cluster_text(cluster: Mapping[str, Any]) -> str:
    """Describe a cluster, given as `describe_cluster` returns it: values with their units."""
    parts = []
    for name, value in cluster.items():
        if isinstance(value, Mapping) and "sharing" in value:
            value = f"of {link_in_words(value)}"
        elif isinstance(value, Mapping):
            value = ", ".join(f"{ends} ({link_in_words(link)})" for ends, link in value.items())
        parts.append(f"{name.replace('_', ' ')} {value}")
    return "; ".join(parts)
