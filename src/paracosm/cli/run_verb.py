"""Running a study from the command line: one run or a sweep, and its exit code."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from paracosm.cli.display import aligned, counter, labelled, paragraph, printer, progress_bar
from paracosm.cli.options import RunFlags, check_folder
from paracosm.cli.other_files import way_out
from paracosm.cli.verbs import INTERRUPTED
from paracosm.errors import InputError, on_one_line, unknown
from paracosm.files import Lock, check_name, temporary_folder
from paracosm.report.runs import (
    TROUBLES,
    answer,
    compared,
    described,
    endings_of,
    ranked,
    remarks_of,
    tables_of,
    verdict,
    view_of,
)
from paracosm.results import Summary, to_json
from paracosm.results.kind import imported
from paracosm.results.view import Figure, View, table
from paracosm.studies import (
    KINDS,
    FailedPoint,
    Hooks,
    Point,
    RunFolder,
    Study,
    SweepRow,
    load_study,
    run_point,
    run_sweep,
    runs_in,
)
from paracosm.studies.run_folder import BEST
from paracosm.studies.scalars import check_mlflow, check_scalars, log_to_mlflow, write_scalars


def run_verb(verb: str, file: Path | None, arguments: Mapping[str, Any]) -> int:
    """Run the study that a file and flags describe, show the result, and return the exit code.

    Args:
        verb: of the kind of run.
        file: a study file, or one that stands for an argument.
        arguments: those of `RunFlags`, of the kind's models, and perhaps `log` and `export`; None
            where not given.
    """
    values = {name: value for name, value in arguments.items() if value is not None}
    flags, log = RunFlags.taken(values), bool(values.pop("log", False))
    export = values.pop("export", None)
    where = str(file) if file is not None else "command line"
    study = _study_in(file, verb, values).with_arguments(flags.seed, values)
    if export is not None:
        return _export(study, where, flags, log, *export)
    if flags.out is None and study.is_sweep and not study.is_comparison:
        names = " and ".join(_SEVERAL.get(name, name) for name in study.lists)
        subject = f"a list of {names} is a sweep, which" if names else "a study with a grid"
        raise InputError(f"{where}: {subject} needs a folder to write: give --out")
    try:
        points = study.points(where)
    except InputError as error:
        if file is not None or values:
            raise
        raise InputError(f"{error}; for example paracosm {KINDS[verb].examples[0]}") from None
    check_folder(flags.out, flags.force)
    if flags.tensorboard is not None:
        check_scalars(flags.tensorboard, flags.force)
    if flags.mlflow is not None:
        check_mlflow(flags.mlflow)
    for conflict, message in (
        (flags.tensorboard and not flags.out, "--tensorboard needs a run folder: give --out"),
        (flags.mlflow and not flags.out, "--mlflow needs a run folder: give --out"),
        (log and flags.json, "--log and --json both write to standard output: give one of them"),
        (log and flags.quiet, "--log prints and --quiet does not: give one of them"),
        (
            log and study.is_sweep,
            "--log works on a single run, and the study has a grid: leave it out",
        ),
    ):
        if conflict:
            raise InputError(message)
    if not study.is_sweep:
        return _run_one(points[0], flags, log)
    if flags.out is not None:
        return _run_sweep_of(study, points, flags.out, flags)
    with temporary_folder() as folder:
        return _run_sweep_of(study, points, folder / "comparison", flags)


def _export(study: Study, where: str, flags: RunFlags, log: bool, name: str, folder: Path) -> int:
    """Write a study for something else that can run it."""
    exports = KINDS[study.kind].exports
    if name not in exports:
        raise unknown("--export", name, exports)
    if study.is_sweep:
        raise InputError("--export writes a single run, and the study is a sweep: give one of them")
    if log or replace(flags, seed=None, quiet=False) != RunFlags():
        raise InputError("--export runs nothing: it takes --seed and --quiet of the flags of a run")
    check_name(folder)
    (point,) = study.points(where)
    sentence = imported(exports[name])(point.config, point.seed, folder)
    if not flags.quiet:
        typer.echo(sentence)
    return 0


_SEVERAL = {"algorithm": "algorithms", "lr": "learning rates"}
"""Of an argument, where its plural is another word."""


def _study_in(file: Path | None, verb: str, values: Mapping[str, Any]) -> Study:
    """Return the study of a file, if any, which may stand for an argument of such runs."""
    if file is None:
        return Study.model_validate({verb: {}})
    adopt = KINDS[verb].adopt
    try:
        adopted: dict[str, Any] | None = None if adopt is None else imported(adopt)(file)
        study = load_study(file) if adopted is None else None
    except InputError as error:
        raise (way_out(file, verb) or error) from None
    if adopted is not None:
        seed = adopted.pop("seed", 0)
        for name in adopted.keys() & values.keys():
            raise InputError(f"{file} is a {name}, and --{name} names another: give one of them")
        return Study.model_validate({"seed": seed, verb: adopted})
    assert study is not None
    if study.kind != verb:
        raise InputError(
            f"{file}: this is {_a_study(study.kind)}, not {_a_study(verb)}: run it with paracosm "
            f"{study.kind} {file}"
        )
    return study


def _a_study(kind: str) -> str:
    return f"{'an' if kind == 'emulate' else 'a'} {kind} study"


def _run_one(point: Point, flags: RunFlags, log: bool) -> int:
    kind, out = KINDS[point.kind], flags.out
    hidden = flags.quiet or flags.json or log or kind.prints(point.config)
    announced: list[str] = []

    def announce(sentence: str) -> None:
        announced.append(sentence)
        if not (flags.quiet or flags.json):
            typer.echo(paragraph(sentence))

    with progress_bar(kind.total(point.config), hidden, kind.unit(point.config)) as progress:
        hooks = Hooks(progress, announce, log, flags.where)
        summary = run_point(point, out, flags.force, hooks).summary
    if out is not None:
        runs, failed = runs_in(out)
        if runs:
            write_report_of(runs, out, failed)
        _write_elsewhere({"": RunFolder.open(out)}, flags)
    if not flags.quiet:
        show_summary(summary, out, flags.json, announced, details=flags.details)
    return _exit_code(point.kind, [summary], flags.quiet)


def _run_sweep_of(study: Study, points: list[Point], out: Path, flags: RunFlags) -> int:
    done = itertools.count(1)
    with counter(len(points), flags.quiet or flags.json, unit="runs") as shown:
        try:
            rows = run_sweep(
                study, points, out, flags.where, flags.force, lambda _: shown(next(done))
            )
        except KeyboardInterrupt:
            again = "the same command" + (", without --force," if flags.force else "")
            raise typer.Abort(f"interrupted: {again} resumes where it stopped") from None
    failed = [row for row in rows if isinstance(row, FailedPoint)]
    ran = [row for row in rows if isinstance(row, SweepRow)]
    if ran and flags.out is not None:
        runs = [out / row.point for row in ran]
        write_report_of(runs, out, {row.point: row.error for row in failed})
        _write_elsewhere({run.name: RunFolder.open(run) for run in runs}, flags)
    if flags.json:
        sys.stdout.write(to_json([row.to_dict() for row in rows]))
    elif ran and not flags.quiet:
        show_sweep(ran, out, is_kept=flags.out is not None, details=flags.details)
    for row in failed:
        print(f"paracosm: {on_one_line(f'{row.point}: {row.error}')}", file=sys.stderr)
    code = _exit_code(study.kind, [row.summary for row in ran], flags.quiet)
    return max(code, 1) if failed else code


def _write_elsewhere(runs: Mapping[str, RunFolder], flags: RunFlags) -> None:
    if flags.tensorboard is not None:
        write_scalars(runs, flags.tensorboard)
    if flags.mlflow is not None:
        log_to_mlflow(runs, flags.mlflow)


def write_report_of(
    runs: list[Path], folder: Path | None = None, failed: Mapping[str, str] | None = None
) -> None:
    """Write the report of run folders, into `folder` or the only one of them, locked meanwhile.

    `failed` says of other points of a sweep why they could not run.
    """
    from paracosm.report import write_report

    folder = folder or runs[0]
    with Lock(folder):
        write_report([RunFolder.open(run) for run in runs], folder / "report.html", failed or {})


def _exit_code(kind: str, summaries: list[Summary], quiet: bool) -> int:
    if any(summary.status == "interrupted" for summary in summaries):
        return INTERRUPTED
    good = (KINDS[kind].success, "noisy")
    failed = [summary for summary in summaries if summary.status not in good]
    if failed and quiet:
        which = f"{len(failed)} of {len(summaries)} runs: " if len(summaries) > 1 else ""
        print(f"paracosm: {which}{why(failed[0])}", file=sys.stderr)
    return 1 if failed else 0


def why(summary: Summary) -> str:
    """Return why a run has ended otherwise than wanted."""
    return verdict(view_of(summary), summary).why or answer(summary)


def show_summary(
    summary: Summary,
    out: Path | None,
    json: bool,
    announced: Collection[str] = (),
    *,
    details: bool = False,
) -> None:
    """Print a run's answer, what a decision needs and where the rest is, or the whole summary as
    JSON. Remarks already `announced` before the run are not repeated.
    """
    if json:
        sys.stdout.write(to_json(summary))
        return
    say, view = printer(), view_of(summary)
    ended = verdict(view, summary)
    is_noisy = summary.status == "noisy"
    if is_noisy:
        say(paragraph(ended.why or ""), style=STYLES[ended.level])
    sentence = answer(summary)
    say(paragraph(sentence), style=STYLES[ended.level])
    say()
    decisive = None if details else _decisive(summary, view)
    remarks = (remarks_of(summary) | view.origins(summary)).items()
    known = [
        ("status", ended.word),
        *((label, write(summary)) for label, write in view.figures.items()),
        *((subject, str(text)) for subject, text in remarks if text not in announced),
    ]
    facts = [(label, text) for label, text in known if text is not None]
    tables = tables_of(summary)
    shown_facts = [(_emphasis(label), text) for label, text in facts if _is_in(decisive, label)]
    shown_tables = [part for part in tables if _is_in(decisive, part.title)]
    if shown_facts:
        say(labelled(shown_facts))
    for part in shown_tables:
        say()
        say(aligned([(part.title, *(f">{word}" for word in part.header[1:])), *part.rows]))
    explained = summary.status not in view.endings or ended.why == sentence
    if ended.why is not None and not explained and not is_noisy:
        say(paragraph(ended.why), style=STYLES[ended.level])
    is_all = len(shown_facts) + len(shown_tables) == len(facts) + len(tables)
    if (rest := _rest(out, is_all=is_all)) is not None:
        say(rest)
    if out is not None:
        say(f"next: {_next_command(out)}")


def _decisive(summary: Summary, view: View) -> frozenset[str] | None:
    """Return the names of what is shown without --details; None: of all."""
    if view.decisive is None:
        return None
    status = () if verdict(view, summary).level == "good" else ("status",)
    return view.decisive.union(("by default", "what if"), view.warnings(summary), status)


def _is_in(names: frozenset[str] | None, name: str) -> bool:
    return names is None or name in names


def _rest(out: Path | None, *, is_all: bool) -> str | None:
    """Return where to find what is not shown; None without any: in the report, if it was written,
    since the run itself is not repeated.
    """
    if out is not None and (out / "report.html").exists():
        return f"report: {out / 'report.html'}"
    ways = ["--details"] * (not is_all)
    ways += ["--out runs/NAME, which writes a report with figures"] * (out is None)
    return f"more: {', or '.join(ways)}" if ways else None


def _next_command(out: Path) -> str:
    """Return what to type after a run."""
    if (out / BEST).exists():
        return f"paracosm {load_study(out / BEST).kind} {out / BEST} --out runs/best"
    trace = f"paracosm trace {out} (timeline), " if (out / "timeline.parquet").exists() else ""
    return f"{trace}paracosm report {out} OTHER (comparison)"


def show_sweep(
    rows: Sequence[SweepRow], out: Path, *, is_kept: bool = True, details: bool = False
) -> None:
    """Print a line for each run of a sweep."""
    say, view = printer(), view_of(rows[0].summary)
    runs = described([RunFolder.open(out / row.point) for row in rows])
    best = compared(runs)
    if best is not None:
        say(paragraph(best))
        say()
    endings = [verdict(view, row.summary) for row in rows]
    columns = _varied_columns(rows)
    if any(ended.level != "good" for ended in endings):
        columns["status"] = lambda row: verdict(view, row.summary).word
    labels = [label for label in view.figures if label != "Wall time"]
    decisive = None if details else view.decisive
    shown = [label for label in labels if _is_in(decisive, label)]
    for label in shown:
        columns.setdefault(_emphasis(label), _of_summary(view.figures[label]))
    ranking = ranked(runs)
    by_run = ranking or table("", rows, columns)
    say(aligned([tuple(f">{header}" for header in by_run.header), *by_run.rows]))
    if sum(ended.why is not None for ended in endings) > TROUBLES:
        say(endings_of(endings), style=STYLES["warning"])
        endings = []
    for row, ended in zip(rows, endings, strict=False):
        if ended.why is not None:
            say(paragraph(f"{row.point}: {ended.why}"), style=STYLES[ended.level])
    rest = _rest(out if is_kept else None, is_all=ranking is not None or shown == labels)
    if rest is not None:
        say(rest)
    if is_kept:
        say(f"next: paracosm report {out / rows[0].point} (one of its runs)")


STYLES = {"good": None, "warning": "yellow", "bad": "red"}
"""Style of the answer in a terminal, by verdict."""


def _emphasis(label: str) -> str:
    return label[0].lower() + label[1:]


def _varied_columns(rows: Sequence[SweepRow]) -> dict[str, Callable[[SweepRow], str | None]]:
    """Return a column for each varied argument; names of points replace long values."""
    if any(isinstance(value, Mapping | list) for row in rows for value in row.varied.values()):
        return {"point": lambda row: row.point}

    def text(key: str) -> Callable[[SweepRow], str]:
        return lambda row: str(row.varied.get(key, ""))

    keys = dict.fromkeys(key for row in rows for key in row.varied)
    return {key.replace("_", " "): text(key) for key in keys}


def _of_summary(write: Figure) -> Callable[[SweepRow], str | None]:
    return lambda row: write(row.summary)
