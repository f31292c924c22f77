"""What all verbs that run something have in common: one run or a sweep, and its exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from paracosm.cli.display import progress_bar
from paracosm.cli.show import show_summary, show_sweep
from paracosm.errors import InputError
from paracosm.results import Summary
from paracosm.studies import (
    KINDS,
    Hooks,
    Point,
    RunFolder,
    Study,
    load_study,
    run_point,
    run_sweep,
)

__all__ = ["run_verb"]


def run_verb(
    kind: str,
    study: Path | None,
    arguments: Mapping[str, Any],
    seed: int | None,
    out: Path | None,
    force: bool,
    jobs: int,
    json: bool,
    quiet: bool,
    log: bool = False,
) -> int:
    """Run what a study file and flags ask for, show it, and return the exit code.

    Args:
        kind: the verb.
        study: the study file, if one is given.
        arguments: the flags made from the kind's model; None where one is not given.
        seed, out, force, jobs, json, quiet, log: as the flags of these names say.

    Raises:
        InputError: if it cannot run, or some flag would have no effect.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    where = str(study) if study is not None else "command line"
    wanted = _study(kind, study).with_arguments(seed, given)
    points = wanted.points(where)
    for conflict, message in (
        (log and json, "--log and --json both print to standard output: give one of them"),
        (json and quiet, "--json prints and --quiet does not: give one of them"),
        (force and out is None, "--force replaces the run in a folder: give --out as well"),
        (log and wanted.is_sweep, "--log is for one run, and the study has a grid: leave it out"),
        (jobs > 1 and not wanted.is_sweep, "--jobs is for a study with a grid: leave it out"),
    ):
        if conflict:
            raise InputError(message)
    if wanted.is_sweep:
        if out is None:
            what = " and ".join(wanted.counts)
            what = f"a list of {what} is a sweep, which" if what else "a study with a grid"
            raise InputError(f"{where}: {what} needs a folder to write: give --out")
        return _sweep(wanted, points, out, jobs, force, json, quiet)
    return _one(points[0], out, force, json, quiet, log)


def _study(kind: str, file: Path | None) -> Study:
    """Return the study in a file, or an empty one; it must be one of `kind`."""
    if file is None:
        return Study.model_validate({kind: {}})
    study = load_study(file)
    if study.kind != kind:
        raise InputError(
            f"{file}: a study of {study.kind}, not of {kind}: run it with "
            f"paracosm {study.kind} {file}"
        )
    return study


def _one(point: Point, out: Path | None, force: bool, json: bool, quiet: bool, log: bool) -> int:
    kind = KINDS[point.kind]
    hidden = quiet or json or log or kind.prints(point.config)
    said: list[str] = []

    def announce(sentence: str) -> None:
        said.append(sentence)
        if not (quiet or json):
            typer.echo(sentence)

    with progress_bar(kind.total(point.config), hidden, kind.unit(point.config)) as progress:
        summary = run_point(point, out, force, Hooks(progress, announce, log)).summary
    if out is not None:
        _write_report([RunFolder.open(out)], out / "report.html")
    if not quiet:
        show_summary(summary, out, json, said)
    return _exit_code(point.kind, [summary])


def _sweep(
    study: Study, points: list[Point], out: Path, jobs: int, force: bool, json: bool, quiet: bool
) -> int:
    with _points_done(len(points), hidden=quiet or json) as finished:
        try:
            rows = run_sweep(study, points, out, jobs, force, finished)
        except KeyboardInterrupt:
            again = "the same command" + (", without --force," if force else "")
            raise typer.Abort(f"interrupted: {again} goes on where it stopped") from None
    _write_report([RunFolder.open(out / point.name) for point in points], out / "report.html")
    if not quiet:
        show_sweep(rows, out, json)
    return _exit_code(study.kind, [row.summary for row in rows])


@contextlib.contextmanager
def _points_done(total: int, hidden: bool) -> Iterator[Callable[[Point], None]]:
    with progress_bar(total, hidden, unit="runs") as progress:
        done = 0

        def finished(point: Point) -> None:
            nonlocal done
            done += 1
            progress(done, None)

        yield finished


def _write_report(runs: list[RunFolder], path: Path) -> None:
    from paracosm.report import write_report

    write_report(runs, path)


def _exit_code(kind: str, summaries: list[Summary]) -> int:
    success = KINDS[kind].success
    return 0 if all(summary.status == success for summary in summaries) else 1
