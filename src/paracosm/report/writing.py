"""The report: one HTML file with everything in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from paracosm.report import markup
from paracosm.report.figures import plotly_figure
from paracosm.report.kinds import all_sections, described, view_of
from paracosm.report.markup import page
from paracosm.report.varied import arguments_of
from paracosm.report.view import Run, answer
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.studies import RunFolder


def write_report(runs: Sequence[RunFolder], path: str | Path) -> None:
    """Write the report of one run, or the comparison of several, to the HTML file `path`.

    The file needs nothing else: no network, no other file. What a run has no data for is left out.
    A run that goes on, or was killed, is shown as far as it got.

    Raises:
        InputError: no run is given, a run's files are damaged, or the runs are of different kinds.
    """
    shown = described(runs)
    single = len(shown) == 1
    first, parts = all_sections(shown)
    names = [run.name for run in shown]
    charts = [chart for part in (*first, *parts) for chart in part.charts]
    numbers = key_numbers(shown)
    body = [
        _lead(shown),
        *map(markup.section, first),
        markup.tiles(shown[0], numbers) if single else markup.run_table(shown, numbers),
        markup.run_legend(shown) if parts else "",
        *map(markup.section, parts),
        _details(shown),
    ]
    html = page(
        title=names[0] if single else f"{len(shown)} runs compared",
        subtitle=_subtitle(shown),
        body="".join(body),
        figures={chart.name: plotly_figure(chart, names) for chart in charts},
    )
    Path(path).write_text(html, encoding="utf-8")


def _lead(runs: Sequence[Run]) -> str:
    """Return what runs came to, where their kind says that first, and what is wrong with them."""
    view = view_of(runs[0].numbers)
    if len(runs) > 1:
        return markup.lead(view.compare(runs)) + markup.troubles(runs)
    why = runs[0].verdict.why
    said = answer(runs[0].numbers) if why is None and view.leads else why
    return markup.lead(said, runs[0].verdict.level)


def _subtitle(runs: Sequence[Run]) -> str:
    pairs = [({**run.folder.study, **arguments_of(run.folder), **_found(run)}, run) for run in runs]
    view = view_of(runs[0].numbers)
    parts = [(run.folder.kind, view.subject(each), each.get("seed")) for each, run in pairs]
    words = []
    for text, values in zip(("{}", "{}", "seed {}"), zip(*parts, strict=True), strict=True):
        if values[0] is not None and len(set(values)) == 1:
            words.append(text.format(values[0]))
    if len(runs) == 1:
        words.append(f"folder {runs[0].folder.path.resolve().name}")
    return " · ".join(words)


def _found(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.numbers.items() if value is not None}


def _details(runs: Sequence[Run]) -> str:
    studies = [{**run.folder.study, **arguments_of(run.folder)} for run in runs]
    for run, study in zip(runs, studies, strict=True):
        study.pop(run.folder.kind or "", None)
    view = view_of(runs[0].numbers)
    remarks = [view_of(run.numbers).remarks(run.numbers) for run in runs]
    origins = [view.origins(run.numbers) for run in runs]
    tables = view.tables(runs[0].numbers) if len(runs) == 1 else []
    blocks = {
        "Breakdown": "".join(map(markup.text_table, tables)),
        "Remarks": markup.comparison(remarks, runs) if any(remarks) else "",
        "Measured, modelled, computed": markup.comparison(origins, runs) if any(origins) else "",
        "Configuration": markup.comparison(studies, runs) + "".join(map(_study_file, runs)),
        "Environment": markup.comparison([_environment(run) for run in runs], runs),
    }
    return "".join(
        f"<section><h2>{escape(title)}</h2>{block}</section>"
        for title, block in blocks.items()
        if block
    )


def _environment(run: Run) -> dict[str, Any]:
    environment = dict(run.folder.environment)
    versions = environment.pop("versions", {})
    # Every run has its own seed and start: the one is in the configuration, the other says little.
    left_out = ("format", "seed", "started")
    kept = {key: value for key, value in environment.items() if key not in left_out}
    return {**(versions if isinstance(versions, Mapping) else {}), **kept}


def _study_file(run: Run) -> str:
    text = yaml.safe_dump(run.folder.study, sort_keys=False, allow_unicode=True)
    return (
        f"<details><summary>study.yaml of {escape(run.name)}</summary>"
        f"<pre>{escape(text)}</pre></details>"
    )


LEVELS = (0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def key_numbers(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return label -> one text for each run, empty where it has no such number."""
    table: dict[str, list[str]] = {}
    for label, write in view_of(runs[0].numbers).figures.items():
        texts = [write(run.numbers) for run in runs]
        if any(text is not None for text in texts):
            table[label] = [text or "" for text in texts]
        if label == "Virtual time" and (level := _common_level(runs)) is not None:
            table[f"Virtual time to {level:.0%} accuracy"] = [_time_to(run, level) for run in runs]
    return table


def _common_level(runs: Sequence[Run]) -> float | None:
    """Return the highest round accuracy that two of the runs reached, or the only run."""
    best = sorted((_best(run) for run in runs), reverse=True)
    reached = best[min(1, len(best) - 1)]
    return next((level for level in LEVELS if level <= reached), None)


def _best(run: Run) -> float:
    values = run.series("accuracy").value
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0


def _time_to(run: Run, level: float) -> str:
    accuracy = run.series("accuracy")
    reached = np.flatnonzero(accuracy.value >= level)
    return format_duration(float(accuracy.virtual_time[reached[0]])) if len(reached) else "never"
