"""`paracosm trace`: a run's timeline as a file that Perfetto opens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paracosm.errors import InputError
from paracosm.studies import RunFolder
from paracosm.timeline import write_trace

__all__ = ["trace"]


def trace(
    run: Annotated[Path, typer.Argument(help="a run folder")],
    out: Annotated[
        Path | None, typer.Option(help="file to write, .json or .json.gz [RUN/trace.json.gz]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing but errors")] = False,
) -> int:
    """Write a run's timeline as a trace: open it at ui.perfetto.dev or in chrome://tracing.

    Example: paracosm trace runs/asgd16
    """
    folder = RunFolder.open(run)
    timeline = folder.timeline()
    if timeline is None and folder.kind == "predict":
        raise InputError(f"{run}: no timeline: the run is not finished, or of op latencies")
    if timeline is None:
        raise InputError(
            f"{run}: no timeline was recorded: the run is not finished, or too long; "
            "--timeline records every span of any run"
        )
    path = out or run / "trace.json.gz"
    try:
        write_trace(timeline, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    if not quiet:
        typer.echo(path)
    return 0
