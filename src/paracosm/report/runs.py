"""The runs of a report: their names, how they ended, what their views declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from paracosm.errors import InputError
from paracosm.expression import split_list
from paracosm.report.chart import drawn_sections, style_of
from paracosm.report.sweep_charts import sweep_charts
from paracosm.results import Summary
from paracosm.results.chart import Chart, Section
from paracosm.results.comparison import (
    design_name,
    differing,
    runs_side_by_side,
    scalar_arguments,
    varied_of,
)
from paracosm.results.kind import Answer, imported
from paracosm.results.view import Grade, Run, Table, Trials, Verdict, View

if TYPE_CHECKING:
    from paracosm.studies import RunFolder


def answer(summary: Summary) -> str:
    """Return the answer of a run in one or two sentences, or a note that it is unfinished.

    The terminal, the page and a result in Python begin with it.
    """
    if summary.status == "unfinished":
        return "The run is unfinished: still running, or killed."
    place = _declared(summary).sentence
    sentence = None if place is None else imported(place)(summary)
    return sentence or f"The run ended with status {summary.status}."


def view_of(summary: Summary) -> View:
    """Return the view of a run with this summary, a plain one for kinds without their own."""
    place = _declared(summary).view
    view: View = View(figures={}) if place is None else imported(place)
    return view


def _declared(summary: Summary) -> Answer:
    from paracosm.studies.kinds import answer_to  # which loads pydantic

    return answer_to(summary)


def described(folders: Sequence[RunFolder]) -> list[Run]:
    """Name the runs as their kind does; equal names are distinguished by arguments or folders."""
    if not folders:
        raise InputError("a report needs at least one run")
    kinds = sorted({str(folder.kind) for folder in folders})
    if len(kinds) > 1:
        raise InputError(f"cannot compare runs of different kinds: {', '.join(kinds)}")
    runs = [_run_of(index, folder) for index, folder in enumerate(folders)]
    names = _short_names(_distinct_names(runs))
    times = Counter(names)
    leaves = Counter(run.path.name for run in runs)
    for place, (name, run) in enumerate(zip(names, runs, strict=True)):
        folder = run.path.name
        if leaves[folder] > 1:
            folder = f"{run.path.parent.name}/{folder}"
        runs[place] = replace(run, name=name if times[name] == 1 else f"{name} ({folder})")
    styles = view_of(runs[0].numbers).styles(runs) or [run.style for run in runs]
    return [replace(run, style=style) for run, style in zip(runs, styles, strict=True)]


LONG_NAME = 48  # letters


def _short_names(names: Sequence[str]) -> list[str]:
    """Return long names without the parts that all have, which the page says once."""
    if len(names) == 1 or max(map(len, names)) <= LONG_NAME:
        return list(names)
    parts = [split_list(name) for name in names]
    common = set(parts[0]).intersection(*parts[1:])
    short = [", ".join(part for part in words if part not in common) for words in parts]
    return short if all(short) else list(names)


def _run_of(index: int, folder: RunFolder) -> Run:
    summary, view = folder.results, view_of(folder.results)
    if folder.summary is None:
        # Of an unfinished run, the values known from its metrics.
        so_far = view.so_far(folder.series)
        summary = type(summary).from_dict({"status": folder.status, **so_far})
    path = folder.path.resolve()
    run = Run(
        name=path.name,
        index=index,
        numbers=summary,
        verdict=verdict(view, summary),
        style=style_of(index),
        path=path,
        status=folder.status,
        kind=folder.kind or "",
        study=folder.study,
        environment=folder.environment,
        series=cache(folder.series),
        read_timeline=folder.timeline,
    )
    name = view.name({**run.arguments, **(folder.summary or {})})
    return replace(run, name=name or path.name)


def _distinct_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs, with the differing arguments added to repeated ones."""
    names = [run.name for run in runs]
    distinct = list(names)
    for name in {name for name, times in Counter(names).items() if times > 1}:
        places = [place for place, other in enumerate(names) if other == name]
        varied = differing([scalar_arguments(runs[place]) for place in places])
        for place, arguments in zip(places, varied, strict=True):
            distinct[place] = ", ".join(filter(None, [name, design_name(arguments.items())]))
    return distinct


SUCCESSES = frozenset({"done", "converged"})
"""The statuses of successful runs."""

FAILURES = frozenset({"diverged", "failed"})
"""The statuses of failed runs; others are incomplete."""


def verdict(view: View, summary: Summary) -> Verdict:
    """Return how a run ended."""
    if summary.status in SUCCESSES:
        return view.doubt(summary) or Verdict("good", summary.status)
    level: Grade = "bad" if summary.status in FAILURES else "warning"
    return Verdict(level, summary.status, _why(view, summary))


def _why(view: View, summary: Summary) -> str:
    ending = view.endings.get(summary.status)
    if ending is not None and (sentence := ending(summary)):
        return sentence
    match summary.status:
        case "unfinished":
            return (
                "The run is unfinished: still running, or killed. This is what it has written so "
                "far."
            )
        case "interrupted":
            return "The run was interrupted."
    return f"The run ended with status {summary.status}."


TROUBLES = 4  # runs whose endings are reported one by one


def endings_of(verdicts: Sequence[Verdict]) -> str:
    """State how many runs failed or stopped early, and their statuses."""
    words = Counter(verdict.word for verdict in verdicts if verdict.why is not None)
    how = ", ".join(f"{count:,} {word}" for word, count in words.items())
    return f"{words.total():,} of {len(verdicts):,} runs failed or stopped early: {how}."


def remarks_of(summary: Summary) -> dict[str, str]:
    """Return the remarks of a run by subject, its defaults first, then its warnings."""
    defaults = {name.replace("_", " "): value for name, value in (summary.defaults or {}).items()}
    by_default = ", ".join(f"{name} {value}" for name, value in defaults.items())
    what_if = "; ".join(summary.what_if or ())
    view = view_of(summary)
    remarks = {"by default": by_default, "what if": what_if} | dict(view.warnings(summary))
    remarks |= view.remarks(summary)
    return {subject: text for subject, text in remarks.items() if text}


def settings_of(runs: Sequence[Run]) -> list[str]:
    """Return of each run what it differs in, and what else it was told that is not a default."""
    from paracosm.studies.study import OF_NO_ANSWER

    texts = []
    for run, varied in zip(runs, varied_of(runs), strict=True):
        unsaid = {*(run.numbers.defaults or {}), *OF_NO_ANSWER}
        unsaid |= {name for name, value in run.arguments.items() if value in ([], {})}
        told = {name: v for name, v in scalar_arguments(run).items() if name not in unsaid}
        texts.append(design_name((varied | told).items()))
    return texts


def tables_of(summary: Summary) -> list[Table]:
    """Return the tables of a run that have rows."""
    return [table for table in view_of(summary).tables(summary) if table.rows]


def compared(runs: Sequence[Run]) -> str | None:
    """Say which of several runs is best; None for kinds that do not compare."""
    return view_of(runs[0].numbers).compare(_trials(runs))


def ranked(runs: Sequence[Run]) -> Table | None:
    """Return the table of several runs, the best first; None for kinds that do not rank them."""
    return view_of(runs[0].numbers).ranked(_trials(runs)) if len(runs) > 1 else None


def _trials(runs: Sequence[Run]) -> Trials:
    return (view_of(runs[0].numbers).trials or runs_side_by_side)(runs)


def all_sections(runs: Sequence[Run]) -> tuple[list[Section], list[Section]]:
    """Return the sections before the table of several runs, and those after it."""
    view, styles = view_of(runs[0].numbers), [run.style for run in runs]
    first: list[Chart] = []
    if len(runs) > 1:
        trials = _trials(runs)
        first = sweep_charts(trials, view.quantities(trials))
    return (
        drawn_sections({"What it depends on": first}, styles),
        drawn_sections(view.sections(runs), styles),
    )


def all_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return every chart of runs, in the order of their report."""
    before, after = all_sections(runs)
    return [chart for section in (*before, *after) for chart in section.charts]
