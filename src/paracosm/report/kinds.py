"""Which module shows which kind of run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paracosm.errors import InputError
from paracosm.report import emulate_words, plan, predict_words, relax, replay, train
from paracosm.report.view import Run, View, verdict
from paracosm.results import SUMMARIES, Summary

if TYPE_CHECKING:
    from paracosm.studies import RunFolder

VIEWS: Mapping[str, View] = {
    "training": train.VIEW,
    "relaxation": relax.VIEW,
    "iteration": predict_words.VIEW,
    "job": predict_words.VIEW,
    "throughput": predict_words.VIEW,
    "op latencies": predict_words.VIEW,
    "emulation": emulate_words.VIEW,
    "replay": replay.VIEW,
    "plan": plan.VIEW,
}
"""By the kind of the summary."""


def view_of(summary: Summary) -> View:
    """Return how a run with this summary is shown; without charts and words of its own, plainly."""
    return VIEWS.get(summary.kind) or View(figures={})


def described(folders: Sequence[RunFolder]) -> list[Run]:
    """Name the runs: as their kind does; where that is ambiguous, by folder as well."""
    if not folders:
        raise InputError("a report needs at least one run")
    kinds = sorted({str(folder.kind) for folder in folders})
    if len(kinds) > 1:
        raise InputError(f"runs of different kinds do not compare: {', '.join(kinds)}")
    short = [_short_name(folder) for folder in folders]
    times = Counter(short)
    leaf = Counter(folder.path.resolve().name for folder in folders)
    runs = []
    for index, (name, folder) in enumerate(zip(short, folders, strict=True)):
        path = folder.path.resolve()
        place = path.name if leaf[path.name] == 1 else f"{path.parent.name}/{path.name}"
        summary = _known(folder)
        runs.append(
            Run(
                folder,
                name if times[name] == 1 else f"{name} ({place})",
                index,
                summary,
                verdict(view_of(summary), summary),
            )
        )
    return runs


def _known(folder: RunFolder) -> Summary:
    """Return the summary of a run; of an unfinished one what its metrics say so far."""
    summary = folder.results
    if folder.summary is not None:
        return summary
    so_far = view_of(summary).so_far(folder.series)
    return SUMMARIES[summary.kind].from_dict({"status": folder.status, **so_far})


def _short_name(folder: RunFolder) -> str:
    asked = folder.study.get(folder.kind or "")
    known = {**(asked if isinstance(asked, Mapping) else {}), **(folder.summary or {})}
    return view_of(folder.results).name(known) or folder.path.resolve().name
