"""The runs of a report: their names, how they ended, what their views declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paracosm.errors import InputError
from paracosm.report import (
    emulate_words,
    plan,
    predict_words,
    relax,
    replay,
    strategy_plan,
    train,
    tune,
)
from paracosm.report.chart import style_of
from paracosm.report.sweeps import design_name, differing, scalar_arguments
from paracosm.results import Summary
from paracosm.results.chart import Chart, Section
from paracosm.results.kind import imported
from paracosm.results.view import Grade, Run, Verdict, View

if TYPE_CHECKING:
    from paracosm.studies import RunFolder

VIEWS: Mapping[str, View] = {
    "training": train.VIEW,
    "relaxation": relax.VIEW,
    "iteration": predict_words.VIEW,
    "job": predict_words.VIEW,
    "throughput": predict_words.VIEW,
    "emulation": emulate_words.VIEW,
    "replay": replay.VIEW,
    "plan": plan.VIEW,
    "strategy plan": strategy_plan.VIEW,
    "tuning": tune.VIEW,
}
"""By the kind of the summary, of kinds whose room has no view of its own."""


def view_of(summary: Summary) -> View:
    """Return the view of a run with this summary, a plain one for kinds without their own."""
    from paracosm.studies.kinds import KINDS  # which loads pydantic

    answer = KINDS.answer_to(summary)
    if answer is not None and answer.view is not None:
        view: View = imported(answer.view)
        return view
    return VIEWS.get(summary.kind) or View(figures={})


def described(folders: Sequence[RunFolder]) -> list[Run]:
    """Name the runs as their kind does; equal names are distinguished by arguments or folders."""
    if not folders:
        raise InputError("a report needs at least one run")
    kinds = sorted({str(folder.kind) for folder in folders})
    if len(kinds) > 1:
        raise InputError(f"cannot compare runs of different kinds: {', '.join(kinds)}")
    runs = [_run_of(index, folder) for index, folder in enumerate(folders)]
    names = _distinct_names(runs)
    times = Counter(names)
    leaves = Counter(run.path.name for run in runs)
    for place, (name, run) in enumerate(zip(names, runs, strict=True)):
        folder = run.path.name
        if leaves[folder] > 1:
            folder = f"{run.path.parent.name}/{folder}"
        runs[place] = replace(run, name=name if times[name] == 1 else f"{name} ({folder})")
    if (styles_of := view_of(runs[0].numbers).styles) is not None:
        runs = [replace(run, style=s) for run, s in zip(runs, styles_of(runs), strict=True)]
    return runs


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
        read=folder.series,
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


TROUBLES = 4  # runs whose endings are reported one by one


def endings_of(verdicts: Sequence[Verdict]) -> str:
    """State how many runs failed or stopped early, and their statuses."""
    words = Counter(each.word for each in verdicts if each.why is not None)
    how = ", ".join(f"{count:,} {word}" for word, count in words.items())
    return f"{words.total():,} of {len(verdicts):,} runs failed or stopped early: {how}."


def remarks_of(summary: Summary) -> dict[str, str]:
    """Return the remarks of a run by subject, its defaults first."""
    defaults = {name.replace("_", " "): value for name, value in (summary.defaults or {}).items()}
    by_default = ", ".join(f"{name} {value}" for name, value in defaults.items())
    remarks = {"by default": by_default, **view_of(summary).remarks(summary)}
    return {subject: text for subject, text in remarks.items() if text}


def all_sections(runs: Sequence[Run]) -> tuple[list[Section], list[Section]]:
    """Return the sections before the table of several runs, and those after it."""
    view = view_of(runs[0].numbers)
    overview = view.overview(runs) if len(runs) > 1 else None
    first = [] if overview is None else [overview]
    return _with_styles(first, runs), _with_styles(view.sections(runs), runs)


def _with_styles(sections: Sequence[Section], runs: Sequence[Run]) -> list[Section]:
    styles = tuple(run.style for run in runs)
    return [
        replace(part, charts=tuple(replace(chart, styles=styles) for chart in part.charts))
        for part in sections
    ]


def all_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return every chart of runs, in the order of their report."""
    first, then = all_sections(runs)
    return [chart for section in (*first, *then) for chart in section.charts]
