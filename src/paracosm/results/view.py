"""What a kind of run declares of its presentation: in a terminal, on the page, in a notebook.

A room has a `View` of its kind in `<room>/view.py`; `paracosm.report` renders it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any, Literal

from paracosm.results.chart import Sections, Style
from paracosm.results.metrics import Series
from paracosm.results.summaries import Summary
from paracosm.units import format_duration, format_energy, format_size

Grade = Literal["good", "warning", "bad"]

ASSUMED = "assumed: "
"""How the source of a time begins that nobody has given or measured."""


@dataclass(frozen=True)
class Verdict:
    """How a run ended."""

    level: Grade
    word: str  # its status, or a text in place of it
    why: str | None = None  # a sentence on why it failed


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a report."""

    name: str  # different for every run of the report
    index: int  # its place in the report
    numbers: Any  # the summary; of an unfinished run, values known from the metrics
    verdict: Verdict
    style: Style  # in figures and tables
    path: Path
    status: str  # of the folder
    kind: str  # the key of its study
    study: Mapping[str, Any]  # as its file has it
    environment: Mapping[str, Any]
    series: Callable[[str], Series]  # one metric by its name; empty if the run has none of it
    read_timeline: Callable[[], Any]

    @cached_property
    def timeline(self) -> Any:
        """The recorded `paracosm.timeline.Timeline`; None without any span."""
        timeline = self.read_timeline()
        return timeline if timeline is not None and len(timeline.spans) else None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the run, without the enclosing name of its kind."""
        arguments = self.study.get(self.kind)
        return arguments if isinstance(arguments, Mapping) else {}


Figure = Callable[[Any], str | None]
"""Returns the text of a key figure from a summary, with its unit; None where it has none."""

FORMS: Mapping[str, Callable[[Any], str]] = {
    "": str,
    "n": "{:,}".format,
    "s": format_duration,
    "B": format_size,
    "J": format_energy,
    "%": "{:.1%}".format,
}
"""Unit of a figure -> how a value is written."""


def figure(key: str, form: str | Callable[[Any], str | None] = "") -> Figure:
    """Return the figure that writes the summary's `key` ("staleness.mean" of what is nested) in a
    unit of `FORMS` or by a function.
    """
    write: Callable[[Any], str | None] = FORMS[form] if isinstance(form, str) else form

    def text(summary: Mapping[str, Any]) -> str | None:
        value: Any = summary
        for name in key.split("."):
            value = None if value is None else value.get(name)
        return None if value is None else write(value)

    return text


@dataclass(frozen=True)
class Table:
    """Rows of text under headers; the first column is flush left, the others right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(
    title: str,
    rows: Sequence[Any],
    columns: Mapping[str, Callable[[Any], str | None]],
    most: int | None = None,
    others: Callable[[Sequence[Any]], str] = lambda rows: f"{len(rows):,} others",
) -> Table:
    """Return a table of records: header -> text of a record, None for an empty cell.

    A column whose cells are all None is left out. Of more than `most` rows the last ones are only
    counted, by `others`.
    """
    shown = rows[:most]
    cells = {header: [text(row) for row in shown] for header, text in columns.items()}
    cells = {h: texts for h, texts in cells.items() if any(text is not None for text in texts)}
    lines = [tuple(text or "" for text in line) for line in zip(*cells.values(), strict=True)]
    if len(shown) < len(rows):
        lines.append((others(rows[len(shown) :]), *[""] * (len(cells) - 1)))
    return Table(title, tuple(cells), tuple(lines))


@dataclass(frozen=True)
class Goal:
    """What the times and updates of several runs are counted to."""

    text: str  # "accuracy >= 0.95", "training loss 0.4"
    is_target: bool  # the runs' own target; else a loss that all reach that learn


@dataclass(frozen=True)
class Trial:
    """One of several runs: what it varies, and how soon it got to the goal."""

    varied: Mapping[str, Any]  # by argument, those that the run takes no notice of left out
    summary: Any
    failure: str | None = None  # why it failed: "diverged", "at chance"
    time: float | None = None  # virtual seconds to the goal; None where it never came there
    updates: int | None = None  # to the goal


@dataclass(frozen=True)
class Trials:
    """Several runs, in the order of the report, and what their times are counted to."""

    runs: Sequence[Trial]
    goal: Goal | None = None  # None where there is none, or no run came near it

    @property
    def variables(self) -> dict[str, list[Any]]:
        """The arguments that differ, the seed among them, each with its values in order."""
        values: dict[str, dict[Any, None]] = {}
        for trial in self.runs:
            for name, value in trial.varied.items():
                values.setdefault(name, {})[value] = None
        return {name: list(different) for name, different in values.items()}


@dataclass(frozen=True)
class Quantity:
    """A number of each of several runs, drawn against what they vary."""

    name: str  # of the chart
    title: str
    value: Callable[[Trial], float | None]  # in SI units; None where the run has none
    unit: str  # of `FORMS`, or what is counted
    missing: str = "have none"  # what is said of runs without a value
    marks_failures: bool = True  # whether runs that failed are crossed out

    def write(self, value: float) -> str:
        """Return a value with its unit."""
        return FORMS[self.unit](value) if self.unit in FORMS else f"{few(value)} {self.unit}"


def unless_failed(value: Callable[[Any], float | None]) -> Callable[[Trial], float | None]:
    """Return the value of a summary, for runs that did not fail."""
    return lambda trial: None if trial.failure else value(trial.summary)


Known = Mapping[str, Any]
"""The arguments of a run, unchecked, and its summary, by their names."""


def _durations(summary: Any) -> dict[str, str]:
    return dict(summary.get("durations") or {})


def no_sections(runs: Sequence[Run]) -> Sections:
    """Return no section."""
    return {}


@dataclass(frozen=True)
class View:
    """The texts and charts of runs of one kind."""

    figures: Mapping[str, Figure]  # by label, in order of display
    sections: Callable[[Sequence[Run]], Sections] = no_sections
    # several runs beside each other; None: each with its arguments that differ, as it ended
    trials: Callable[[Sequence[Run]], Trials] | None = None
    quantities: Callable[[Trials], Sequence[Quantity]] = lambda trials: ()  # drawn of several
    compare: Callable[[Trials], str | None] = lambda trials: None  # several, in a sentence
    ranked: Callable[[Trials], Table | None] = lambda trials: None  # several, the best first
    # None: by place
    styles: Callable[[Sequence[Run]], Sequence[Style] | None] = lambda runs: None
    subject: Callable[[Known], str | None] = lambda known: None
    name: Callable[[Known], str | None] = lambda known: None
    so_far: Callable[[Callable[[str], Series]], dict[str, Any]] = lambda series: {}  # from metrics
    origins: Callable[[Any], dict[str, str]] = _durations  # where numbers come from
    remarks: Callable[[Any], Mapping[str, str | None]] = lambda summary: {}  # by subject, not empty
    # remarks on what the answer leaves out or cannot know
    warnings: Callable[[Any], Mapping[str, str | None]] = lambda summary: {}
    tables: Callable[[Any], list[Table]] = lambda summary: []  # those without rows are left out
    # labels of figures, subjects of remarks and origins, and titles of tables that a terminal shows
    # without --details: what a decision needs, and assumptions that move it; None: all
    decisive: frozenset[str] | None = None
    # further key figures that depend on which runs are compared, with a text for each; a label
    # begins with that of the figure before it
    figures_of_runs: Callable[[Sequence[Run]], Mapping[str, list[str]]] = lambda runs: {}
    # status -> a sentence on why a run ended so
    endings: Mapping[str, Callable[[Any], str | None]] = field(default_factory=dict)
    # what is wrong with a run that ended normally: it learnt nothing, for example
    doubt: Callable[[Any], Verdict | None] = lambda summary: None


def template(pattern: str) -> Callable[[Known], str | None]:
    """Return the text of a pattern such as "{model} on {data}"; None where one is not known."""
    names = [name for _, name, _, _ in Formatter().parse(pattern) if name]

    def text(known: Known) -> str | None:
        missing = any(known.get(name) is None for name in names)
        return None if missing else pattern.format_map(known)

    return text


def known_summary(summary: Summary) -> dict[str, Any]:
    """Return the values of a summary that are known."""
    return {key: value for key, value in summary.items() if value is not None}


def joined(values: Any, separator: str = ", ") -> str:
    """Return the texts of a list, or of the keys of a mapping; of another value, its own."""
    several = values if isinstance(values, list | tuple | dict) else [values] if values else []
    return separator.join(map(str, several))


def assuming(parts: Sequence[str]) -> str | None:
    """Say what an answer rests on that nobody has given, and that moves it; None without any."""
    *rest, last = parts or [""]
    return f"Assuming {', '.join(rest)}{' and ' * bool(rest)}{last}." if last else None


def assumed_values(origins: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return what these kinds of time are assumed to be, of those that nobody has given."""
    texts = (origins.get(name, "").partition(ASSUMED) for name in names)
    return [text for before, mark, text in texts if mark and not before]


def assumed_hardware(origins: Mapping[str, str], *, waits_for_links: bool) -> list[str]:
    """Return the figures of hardware that no document gives, and that move an answer."""
    felt = ("peak_tflops of ", *(("usable of ", "latency of ") if waits_for_links else ()))
    names = [name for name, text in origins.items() if text.startswith(ASSUMED)]
    return [name.replace("_", " ") for name in names if name.startswith(felt)]


def counted(count: int, noun: str) -> str:
    """Return "1 worker" or "1,024 workers"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short_duration(seconds: float) -> str:
    """Return a duration to four digits."""
    return format_duration(float(f"{seconds:.4g}"))


def few(number: float) -> str:
    """Return a number to four digits, "12,346" where it is large."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def percent(share: float) -> str:
    """Return "98.3 %"."""
    return f"{100 * share:.3g} %"
