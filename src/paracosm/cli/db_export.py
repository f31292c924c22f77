"""`paracosm db export`: a profile database as a Parquet or CSV file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.profiling.database import ProfileDatabase, choose_environments
from paracosm.profiling.database import export as export_file
from paracosm.results import to_json
from paracosm.units import format_size

__all__ = ["export"]


def export(
    database: Annotated[Path, typer.Argument(help="a profile database")],
    out: Annotated[
        Path | None, typer.Option(help="file to write, .parquet or .csv [DATABASE.parquet]")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help="only this one: its number in db show, or part of its description"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write all timings of a database to one file for other programs; db merge reads Parquet back.

    Example: paracosm db export profiles.db --out profiles.parquet
    """
    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    path = out or database.with_suffix(".parquet")
    if path.exists() and not force:
        raise InputError(f'"{path}" exists: --force replaces it')
    with ProfileDatabase.open(database, readonly=True) as opened:
        if path.exists() and path.samefile(database):
            raise InputError(f'"{path}" is the database itself: give another file')
        everyone = [each for each, _ in opened.environments()]
        chosen = None if environment is None else choose_environments(everyone, environment)
        written = export_file(opened, path, chosen)
    if json:
        counts = {name: len(getattr(written, name)) for name in ("ops", "links", "iterations")}
        size = path.stat().st_size
        sys.stdout.write(to_json({"file": path, "timings": counts, "size": size}))
    elif not quiet:
        typer.echo(f"{path}: {len(written):,} timings, {format_size(path.stat().st_size)}")
    return 0
