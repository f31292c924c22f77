"""`paracosm train`: hybrid simulation of distributed SGD."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from paracosm.cli.options import with_fields_of
from paracosm.cli.progress import progress_bar
from paracosm.cli.show import show_summary, show_sweep
from paracosm.errors import InputError
from paracosm.study import Point, RunFolder, Study, load_study, run_point, run_sweep
from paracosm.training import TrainConfig

__all__ = ["train"]


@with_fields_of(TrainConfig)
def train(
    study: Annotated[
        Path | None, typer.Argument(help="a study file; flags take the place of what it says")
    ] = None,
    *,
    seed: Annotated[
        int | None, typer.Option(min=0, help="decides everything that is random [0]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="run folder to write: metrics, timeline, report.html")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the run in the folder")] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="runs of a study with a grid to carry out at a time")
    ] = 1,
    json: Annotated[
        bool, typer.Option("--json", help="print the summary as JSON, and nothing else")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing but errors")] = False,
    log: Annotated[bool, typer.Option("--log", help="print a line for every event")] = False,
    **arguments: Any,
) -> int:
    """Train on an imagined cluster: gradients are real, time and network are simulated.

    Example: paracosm train --algorithm asgd --workers 16 --latency 1ms --bandwidth 10Gbit/s
    --updates 500 --out runs/asgd16
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    where = str(study) if study is not None else "command line"
    wanted = (load_study(study) if study is not None else Study(seed=0, train={})).with_arguments(
        seed, given
    )
    for conflict, message in (
        (log and json, "--log and --json both print to standard output: give one of them"),
        (json and quiet, "--json prints and --quiet does not: give one of them"),
        (force and out is None, "--force replaces the run in a folder: give --out as well"),
        (log and wanted.is_sweep, "--log is for one run, and the study has a grid: leave it out"),
        (jobs > 1 and not wanted.is_sweep, "--jobs is for a study with a grid: leave it out"),
    ):
        if conflict:
            raise InputError(message)
    points = wanted.points(where)
    if wanted.is_sweep:
        if out is None:
            raise InputError(f"{where}: a study with a grid needs a folder to write: give --out")
        return _sweep(wanted, points, out, jobs, force, json, quiet)
    return _one(points[0], out, force, json, quiet, log)


def _one(point: Point, out: Path | None, force: bool, json: bool, quiet: bool, log: bool) -> int:
    silent = quiet or json
    config = point.config
    total = config.updates if config.until is not None else config.most_updates
    with progress_bar(total, hidden=silent or log) as progress:
        summary = run_point(point, out, force, progress, log)
    if out is not None:
        _write_report([RunFolder.open(out)], out / "report.html")
    if not quiet:
        show_summary(summary, out, json)
    return _exit_code([summary])


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
    return _exit_code(rows)


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


def _exit_code(summaries: list[dict[str, Any]]) -> int:
    return 0 if all(summary.get("status") == "done" for summary in summaries) else 1
