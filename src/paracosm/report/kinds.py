"""The view of each kind of run."""

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
from paracosm.report.chart import Chart, Section, look_of
from paracosm.report.view import (
    Run,
    View,
    arguments_of,
    design_name,
    differing,
    scalar_arguments,
    verdict,
)
from paracosm.results import SUMMARIES, Summary

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
"""By the kind of the summary."""


def view_of(summary: Summary) -> View:
    """Return the view of a run with this summary, a plain one for kinds without their own."""
    return VIEWS.get(summary.kind) or View(figures={})


def described(folders: Sequence[RunFolder]) -> list[Run]:
    """Name the runs as their kind does; equal names are distinguished by arguments or folders."""
    if not folders:
        raise InputError("a report needs at least one run")
    kinds = sorted({str(folder.kind) for folder in folders})
    if len(kinds) > 1:
        raise InputError(f"cannot compare runs of different kinds: {', '.join(kinds)}")
    names = []
    for folder in folders:
        known = {**arguments_of(folder), **(folder.summary or {})}
        names.append(view_of(folder.results).name(known) or folder.path.resolve().name)
    short = _distinct_names(names, folders)
    times = Counter(short)
    leaf = Counter(folder.path.resolve().name for folder in folders)
    runs = []
    for index, (name, folder) in enumerate(zip(short, folders, strict=True)):
        path = folder.path.resolve()
        place = path.name if leaf[path.name] == 1 else f"{path.parent.name}/{path.name}"
        summary = _known_summary(folder)
        runs.append(
            Run(
                folder,
                name if times[name] == 1 else f"{name} ({place})",
                index,
                summary,
                verdict(view_of(summary), summary),
                look_of(index),
            )
        )
    looks = view_of(runs[0].numbers).looks(runs)
    return [replace(run, look=look) for run, look in zip(runs, looks, strict=True)]


def _distinct_names(names: Sequence[str], folders: Sequence[RunFolder]) -> list[str]:
    """Return names, with the differing arguments added to repeated ones."""
    found = list(names)
    for name in {name for name, times in Counter(names).items() if times > 1}:
        places = [place for place, other in enumerate(names) if other == name]
        own = differing([scalar_arguments(folders[place]) for place in places])
        for place, varied in zip(places, own, strict=True):
            found[place] = ", ".join(filter(None, [name, design_name(varied.items())]))
    return found


def all_sections(runs: Sequence[Run]) -> tuple[list[Section], list[Section]]:
    """Return the sections before the table of several runs, and those after it."""
    view = view_of(runs[0].numbers)
    overview = view.overview(runs) if len(runs) > 1 else None
    first = [] if overview is None else [overview]
    return _with_looks(first, runs), _with_looks(view.sections(runs), runs)


def _with_looks(sections: Sequence[Section], runs: Sequence[Run]) -> list[Section]:
    looks = tuple(run.look for run in runs)
    return [
        replace(part, charts=tuple(replace(chart, looks=looks) for chart in part.charts))
        for part in sections
    ]


def all_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return every chart of runs, in the order of their report."""
    first, then = all_sections(runs)
    return [chart for section in (*first, *then) for chart in section.charts]


def _known_summary(folder: RunFolder) -> Summary:
    """Return the summary of a run; of an unfinished one, the values known from its metrics."""
    summary = folder.results
    if folder.summary is not None:
        return summary
    so_far = view_of(summary).so_far(folder.series)
    return SUMMARIES[summary.kind].from_dict({"status": folder.status, **so_far})
