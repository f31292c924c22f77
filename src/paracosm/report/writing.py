"""The report: one self-contained HTML file. Every text in it is escaped here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain, groupby
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from paracosm.expression import split_list
from paracosm.files import replacing
from paracosm.report.chart import color_of, dash_of
from paracosm.report.figures import plotly_figure
from paracosm.report.runs import (
    TROUBLES,
    all_sections,
    answer,
    compared,
    described,
    endings_of,
    ranked,
    remarks_of,
    settings_of,
    tables_of,
    view_of,
)
from paracosm.results.chart import (
    Axis,
    Boxes,
    Chart,
    Curve,
    Dots,
    Level,
    Mark,
    Section,
    Style,
)
from paracosm.results.view import Grade, Run, Table, Verdict, known_summary

if TYPE_CHECKING:
    from paracosm.studies import RunFolder


def write_report(
    runs: Sequence[RunFolder], path: str | Path, failed: Mapping[str, str] | None = None
) -> None:
    """Write the report of one run, or the comparison of several, to the HTML file `path`.

    The file needs no network and no other file. Sections without data are left out. An unfinished
    or killed run is shown as far as it got; `failed` says of further points of a sweep why they
    could not run.

    Raises:
        InputError: there is no run, files are damaged, or the runs are of different kinds.
    """
    shown, failed = described(runs), failed or {}
    single = len(shown) == 1
    first, parts = all_sections(shown)
    names = [run.name for run in shown]
    charts = [chart for part in (*first, *parts) for chart in part.charts]
    numbers, best_first = key_numbers(shown), ranked(shown)
    body = [
        _lead(shown),
        failures(failed),
        "" if best_first is None else f"<section>{text_table(best_first)}</section>",
        *map(section, first),
        tiles(shown[0], numbers) if single else run_table(shown, numbers),
        run_legend(shown) if parts else "",
        *map(section, parts),
        _details(shown),
    ]
    html = page(
        title=names[0] if single else f"{len(shown)} runs compared",
        subtitle=_subtitle(shown),
        body="".join(body),
        figures={chart.name: plotly_figure(chart, names) for chart in charts},
    )
    with replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def _lead(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        return lead(compared(runs)) + troubles(runs)
    verdict, summary = runs[0].verdict, runs[0].numbers
    if summary.status == "noisy":
        return lead(verdict.why, verdict.level) + lead(answer(summary))
    return lead(verdict.why or answer(summary), verdict.level)


def _subtitle(runs: Sequence[Run]) -> str:
    pairs = [({**run.study, **run.arguments, **known_summary(run.numbers)}, run) for run in runs]
    view = view_of(runs[0].numbers)
    parts = [(run.kind, view.subject(known), known.get("seed")) for known, run in pairs]
    words = []
    for text, values in zip(("{}", "{}", "seed {}"), zip(*parts, strict=True), strict=True):
        if values[0] is not None and len(set(map(str, values))) == 1:
            words.append(text.format(values[0]))
    if common := _left_out_of_names(runs, view.name(pairs[0][0]) or ""):
        words.insert(1, common)
    if len(runs) == 1:
        words.append(f"folder {runs[0].path.name}")
    return " · ".join(words)


def _left_out_of_names(runs: Sequence[Run], name: str) -> str:
    """Return what the names of all runs leave out of the name of the first one by itself."""
    kept = split_list(runs[0].name)
    return ", ".join(part for part in split_list(name) if part not in kept) if len(runs) > 1 else ""


def _details(runs: Sequence[Run]) -> str:
    studies = [{**run.study, **run.arguments} for run in runs]
    for run, study in zip(runs, studies, strict=True):
        study.pop(run.kind, None)
    view = view_of(runs[0].numbers)
    remarks = [remarks_of(run.numbers) for run in runs]
    origins = [view.origins(run.numbers) for run in runs]
    tables = tables_of(runs[0].numbers) if len(runs) == 1 else []
    blocks = {
        "Breakdown": _side_by_side(map(text_table, tables)) if tables else "",
        "Remarks": comparison(remarks, runs) if any(remarks) else "",
        "Measured, modelled, computed": comparison(origins, runs) if any(origins) else "",
        "Configuration": comparison(studies, runs) + "".join(map(_study_file, runs)),
        "Environment": comparison([_environment(run) for run in runs], runs),
    }
    # A comparison is long enough without them, and so is any page on a narrow screen (page.js).
    folded = "" if len(runs) > 1 else " open class=wide-only"
    return "".join(
        f"<section><details{folded}><summary><h2>{escape(title)}</h2></summary>{block}</details>"
        "</section>"
        for title, block in blocks.items()
        if block
    )


def _side_by_side(blocks: Iterable[str]) -> str:
    return f"<div class=tables>{''.join(f'<div>{block}</div>' for block in blocks)}</div>"


def _environment(run: Run) -> dict[str, Any]:
    environment = dict(run.environment)
    versions = environment.pop("versions", {})
    # Seed and start differ in every run: the seed is in the configuration, the start is irrelevant.
    left_out = ("format", "seed", "started")
    kept = {key: value for key, value in environment.items() if key not in left_out}
    return {**(versions if isinstance(versions, Mapping) else {}), **kept}


def _study_file(run: Run) -> str:
    text = yaml.safe_dump(dict(run.study), sort_keys=False, allow_unicode=True)
    return (
        f"<details><summary>study.yaml of {escape(run.name)}</summary>"
        f"<pre>{escape(text)}</pre></details>"
    )


def key_numbers(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return label -> one text per run, empty where it has no such number."""
    view = view_of(runs[0].numbers)
    rows = {label: [write(run.numbers) for run in runs] for label, write in view.figures.items()}
    shown = {label: texts for label, texts in rows.items() if any(t is not None for t in texts)}
    further = view.figures_of_runs(runs)
    table: dict[str, list[str]] = {}
    for label, texts in shown.items():
        table[label] = [text or "" for text in texts]
        table |= {more: further[more] for more in further if more.startswith(f"{label} ")}
    return table


def page(title: str, subtitle: str, body: str, figures: Mapping[str, Any]) -> str:
    """Return a whole page; each figure goes into an element `<figure id=NAME>` with a `.plot`."""
    return Template(_read("page.html")).substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        body=body,
        style=_read("page.css"),
        scripts=_scripts(figures) if figures else "",
    )


def _scripts(figures: Mapping[str, Any]) -> str:
    data = json.dumps(figures, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # "</script>" in a name would end the element.
    data = data.replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="figures-data">{data}</script>\n'
        f"<script>{_read('drawing.js')}</script>\n"
        f"<script>{_read('page.js')}</script>"
    )


def _read(name: str) -> str:
    return files("paracosm.report").joinpath(name).read_text(encoding="utf-8")


LONG = 40  # letters: longer texts count as sentences

SYMBOLS = {
    "dot": "M7 5a2 2 0 1 0 4 0a2 2 0 1 0 -4 0",
    "triangle": "M9 1l5 8h-10z",
    "diamond": "M9 1l4 4l-4 4l-4 -4z",
    "square": "M5.5 1.5h7v7h-7z",
    "cross": "M5 1l8 8m0-8l-8 8",
}
DASHED = {"solid": "", "dash": "6 3", "dot": "2 2", "dashdot": "6 2 2 2", "longdash": "11 3"}


def tiles(run: Run, numbers: Mapping[str, Sequence[str]]) -> str:
    """Return the key numbers of one run, large."""
    cells = {"Status": _status(run.verdict)}
    cells |= {label: escape(texts[0]) for label, texts in numbers.items()}
    return _definitions(cells, "tiles")


def run_table(runs: Sequence[Run], numbers: Mapping[str, Sequence[str]]) -> str:
    """Return a table of runs by key numbers."""
    head = "".join(f"<th scope=col>{escape(label)}" for label in ("Run", "Status", *numbers))
    rows = "".join(
        f"<tr><th scope=row>{_swatch(run.style)}{escape(run.name)}"
        f"<td>{_status(run.verdict)}"
        + "".join(f"<td>{escape(texts[i])}" for texts in numbers.values())
        for i, run in enumerate(runs)
    )
    return _table(head, rows, "numbers")


def lead(sentence: str | None, level: Grade = "good") -> str:
    """Return the answer or the problem as HTML; empty without one."""
    return "" if sentence is None else _message(level, escape(sentence))


def troubles(runs: Sequence[Run]) -> str:
    """Return a line for each run that failed or stopped early; of many, their number by status."""
    unsuccessful = [run for run in runs if run.verdict.why]
    if len(unsuccessful) > TROUBLES:
        return _message("warning", escape(endings_of([run.verdict for run in runs])))
    return "".join(
        _message(run.verdict.level, f"<b>{escape(run.name)}.</b> {escape(run.verdict.why or '')}")
        for run in unsuccessful
    )


def failures(failed: Mapping[str, str]) -> str:
    """Return a line for each point that could not run, of many for the first ones."""
    lines = [f"<b>{escape(name)}.</b> {escape(why)}" for name, why in failed.items()]
    if len(lines) > TROUBLES:
        lines[TROUBLES:] = [f"{len(lines) - TROUBLES:,} more runs failed: sweep.json says why."]
    return "".join(_message("bad", line) for line in lines)


def _message(level: Grade, html: str) -> str:
    return f'<p class="said {level}" role=note>{html}</p>'


def run_legend(runs: Sequence[Run]) -> str:
    """Return the switches of the runs, common to all figures; empty for a single run."""
    if len(runs) == 1:
        return ""
    chips = "".join(
        f'<button class=chip data-run="{run.index}" aria-pressed=true title="{escape(settings)}">'
        f"{_swatch(run.style)}{escape(run.name)}</button>"
        for run, settings in zip(runs, settings_of(runs), strict=True)
    )
    return f'<nav class=legend aria-label="Runs shown in the figures">{chips}</nav>'


def section(part: Section) -> str:
    """Return a section with a place for each of its figures, those that are folded together."""
    blocks = []
    for is_folded, charts in groupby(part.charts, lambda chart: chart.folded):
        figures = f"<div class=figures>{''.join(map(_figure, charts))}</div>"
        blocks.append(
            f"<details><summary>Show these figures</summary>{figures}</details>"
            if is_folded
            else figures
        )
    return f"<section><h2>{escape(part.title)}</h2>{''.join(blocks)}</section>"


def comparison(mappings: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> str:
    """Return common facts of the runs as a list, and differing ones as a table."""
    flat = [_flattened(mapping) for mapping in mappings]
    keys = list(dict.fromkeys(chain.from_iterable(flat)))
    differing = [key for key in keys if len({texts.get(key, "") for texts in flat}) > 1]
    common = {key: flat[0].get(key, "") for key in keys if key not in differing}
    if not differing:
        return facts(common)
    head = "".join(f"<th scope=col>{escape(_words(key))}" for key in ("run", *differing))
    rows = "".join(
        f"<tr><th scope=row>{_swatch(run.style)}{escape(run.name)}"
        + "".join(f"<td>{escape(texts.get(key, ''))}" for key in differing)
        for run, texts in zip(runs, flat, strict=True)
    )
    return _table(head, rows, "facts") + facts(common)


def facts(mapping: Mapping[str, str]) -> str:
    """Return names and values as a list; empty without any."""
    if not mapping:
        return ""
    return _definitions({_words(key): escape(text) for key, text in mapping.items()}, "facts")


def text_table(table: Table) -> str:
    """Return a table of texts under its title; columns of sentences are left-aligned and folded."""
    columns = list(zip(*table.rows, strict=True))[1:]
    kinds = [" class=long" if max(map(len, texts)) > LONG else "" for texts in columns]
    # On a terminal the title is the header of the first column.
    header = ("" if word == table.title else word for word in table.header)
    first, *others = (escape(_words(word)) for word in header)
    head = f"<th scope=col>{first}"
    head += "".join(f"<th scope=col{k}>{word}" for k, word in zip(kinds, others, strict=True))
    rows = "".join(
        f"<tr><th scope=row>{escape(first)}"
        + "".join(f"<td{k}>{escape(text)}" for k, text in zip(kinds, others, strict=True))
        for first, *others in table.rows
    )
    return f"<h3>{escape(table.title)}</h3>" + _table(head, rows, "texts")


def _figure(chart: Chart) -> str:
    switches = "".join(
        _scale(which, axis) for which, axis in (("x", chart.x), ("y", chart.y)) if axis.switch
    )
    switches = f"<span class=switches>{switches}{SAVE}</span>"
    chips = "".join(
        f'<button class=chip data-series="{escape(name)}" '
        f'aria-pressed="{_truth(name not in chart.hidden)}">'
        f"{_sample(name, chart)}{escape(name)}</button>"
        for name in chart.series
    )
    series = f"<div class=series>{chips}</div>"
    caption = f"<p class=caption>{escape(chart.caption)}</p>" if chart.caption else ""
    return (
        f'<figure id="{escape(chart.name)}"{" class=wide" if chart.wide else ""}>'
        f"<figcaption><h3>{escape(chart.title)}</h3>{switches}</figcaption>{series}"
        f'<div class=plot style="height:{chart.height}px" role=img '
        f'aria-label="{escape(chart.title)}"></div>{caption}</figure>'
    )


SAVE = (
    '<span class=switch role=group aria-label="Save the figure">'
    "<button data-save=png>PNG</button><button data-save=svg>SVG</button></span>"
)


def _scale(which: str, axis: Axis) -> str:
    buttons = "".join(
        f'<button data-scale={scale} aria-pressed="{_truth(axis.log == (scale == "log"))}">'
        f"{scale}</button>"
        for scale in ("linear", "log")
    )
    return (
        f"<span>{escape(axis.switch)}<span class=switch role=group data-axis={which} "
        f'aria-label="Scale of {escape(axis.switch)}">{buttons}</span></span>'
    )


def _sample(series: str, chart: Chart) -> str:
    """Return what a series looks like: in grey where marks of several runs belong to it."""
    marks = [mark for mark in chart.marks if mark.series == series]
    is_grey = len({mark.run for mark in marks}) > 1
    # A line with points on it shows both.
    kinds = {type(mark): mark for mark in reversed(marks)}
    samples = "".join(_line_sample(mark, chart, is_grey) for mark in kinds.values())
    return f'<svg viewBox="0 0 18 10">{samples}</svg>'


def _line_sample(mark: Mark, chart: Chart, is_grey: bool) -> str:
    color = color_of(mark, chart.styles)
    if isinstance(mark, Boxes):
        return f'<rect y=1 width=18 height=8 fill="{color}"/>'
    if isinstance(mark, Level):
        return '<path d="M0 5h18" class="line faint" stroke-dasharray="4 3"/>'
    path = SYMBOLS[mark.symbol] if isinstance(mark, Dots) else "M0 5h18"
    faint = " faint" if isinstance(mark, Curve) and mark.faint else ""
    style = "" if is_grey and mark.color is None else f' style="stroke:{color}"'
    return f'<path d="{path}" class="line{faint}"{style}/>'


def _swatch(style: Style) -> str:
    curve = Curve(np.empty(0), np.empty(0), 0, "")
    dash = DASHED[dash_of(curve, [style])]
    return (
        '<svg class=swatch viewBox="0 0 18 10" aria-hidden=true><path d="M0 5h18" '
        f'stroke="{color_of(curve, [style])}" stroke-width=4 stroke-dasharray="{dash}"/></svg>'
    )


def _status(verdict: Verdict) -> str:
    text = escape(verdict.word)
    return f'<span class="status {verdict.level}">{text}</span>'


def _table(head: str, rows: str, kind: str) -> str:
    return (
        f'<div class=scroll tabindex=0><table class="{kind}"><thead><tr>{head}</thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _definitions(cells: Mapping[str, str], kind: str) -> str:
    pairs = "".join(f"<div><dt>{escape(key)}<dd>{value}</div>" for key, value in cells.items())
    return f'<dl class="{kind}">{pairs}</dl>'


def _flattened(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            flat |= {f"{prefix}{key}": "; ".join(map(str, value))} if value else {}
        elif isinstance(value, bool):
            flat[f"{prefix}{key}"] = "yes" if value else "no"
        elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            flat[f"{prefix}{key}"] = f"{value:.0f}"  # as typed: a float's default is 100000.0
        elif value is not None:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def _words(key: str) -> str:
    return key.replace("_", " ")


def _truth(value: bool) -> str:
    return str(value).lower()
