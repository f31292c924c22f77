"""`paracosm report`: one page about one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from paracosm.cli.options import Quiet, make_folder
from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.studies import RunFolder, finished_runs_in
from paracosm.studies.run_folder import an_unfinished_run
from paracosm.timeline import write_trace


def report(
    runs: Annotated[list[Path], Argument(help="run folders, or the folder of a sweep")],
    out: Annotated[
        Path | None, Option(help="file to write [report.html in the first folder]")
    ] = None,
    images: Annotated[
        Literal["png", "svg"] | None, Option(help="also write each figure, as png or svg")
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Write one self-contained HTML page about one run, or several compared.

    Example: paracosm report runs/asgd16 runs/ssgd16 --out compare.html
    """
    from paracosm.report import write_images, write_report

    folders, failed = [], dict[str, str]()
    for path in runs:
        names, why_not = finished_runs_in(path)
        folders += [RunFolder.open(name) for name in names]
        failed |= why_not
    page = out or runs[0] / "report.html"
    _check_replaced(page, b"<!doctype html", "report")
    make_folder(page.parent)
    write_report(folders, page, failed)
    written = [page]
    if images is not None:
        written += write_images(folders, page.parent, images)
    if not quiet:
        for path in written:
            typer.echo(path)
    return 0


def _check_replaced(path: Path, begin: bytes, noun: str) -> None:
    """Refuse to replace a file that does not begin as what this command writes does."""
    if path.is_file() and path.stat().st_size and read_bytes(path, len(begin)) != begin:
        raise InputError(f"{path} exists and is not a {noun}: give another --out")


def trace(
    run: Annotated[Path, Argument(help="a run folder")],
    out: Annotated[
        Path | None, Option(help="file to write, .json or .json.gz [RUN/trace.json.gz]")
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Write a run's timeline as a trace: open it at ui.perfetto.dev or in chrome://tracing.

    Example: paracosm trace runs/asgd16
    """
    folder = RunFolder.open(run)
    timeline = folder.timeline()
    if timeline is None and folder.kind == "plan":
        raise InputError(f"{run}: a plan has no timeline")
    if timeline is None and folder.summary is None and folder.kind is not None:
        raise InputError(f"{run}: no timeline yet: the folder has {an_unfinished_run(folder)}")
    if timeline is None:
        raise InputError(
            f"{run}: no timeline was recorded: the run is too long, or --no-timeline was given; "
            "--timeline records every span of any run"
        )
    path = out or run / "trace.json.gz"
    _check_replaced(path, b'{"displayTimeUnit"', "trace")
    write_trace(timeline, path)
    if not quiet:
        typer.echo(path)
    return 0
