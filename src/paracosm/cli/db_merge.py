"""`paracosm db merge`: several profile databases as one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from paracosm.cli.display import grid, printer
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.profiling.database import Added, describe, replacing_database
from paracosm.profiling.database import merge as merge_files
from paracosm.profiling.environment import Environment
from paracosm.study.plain import to_json

__all__ = ["merge"]


def merge(
    sources: Annotated[
        list[Path], typer.Argument(help="profile databases, or Parquet files from db export")
    ],
    out: Annotated[Path | None, typer.Option(help="new database to write")] = None,
    into: Annotated[
        Path | None, typer.Option(help="database to add to; made where there is none")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file of --out")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Merge profile databases, of one machine or of many; what is there already is not doubled.

    Example: paracosm db merge profiles.db --out all.db
    """
    if (out is None) == (into is None):
        raise InputError("give either --out for a new database or --into for one to add to")
    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if into is not None:
        if force:
            raise InputError("--force replaces the file of --out: --into adds and replaces nothing")
        counts = merge_files(into, sources)
    else:
        assert out is not None
        counts = _anew(out, sources, force)
    target = out or into
    if json:
        sys.stdout.write(to_json({"file": target, "environments": _plain(counts)}))
    elif not quiet:
        say = printer()
        say(grid(_table(counts)))
        say(f"{target}")
    return 0


def _anew(out: Path, sources: list[Path], force: bool) -> dict[Environment, Added]:
    if out.is_dir():
        raise InputError(f'"{out}" is a folder, not a profile database')
    if out.exists():
        if not force:
            raise InputError(f'"{out}" exists: --into adds to it, --force replaces it')
        if any(source.exists() and out.samefile(source) for source in sources):
            raise InputError(f'"{out}" would be replaced, and is to be merged: --into adds to it')
    with replacing_database(out) as unfinished:
        return merge_files(unfinished, sources)


def _plain(counts: Mapping[Environment, Added]) -> list[dict[str, object]]:
    return [
        {**asdict(environment), "added": added.new, "already_there": added.known}
        for environment, added in counts.items()
    ]


def _table(counts: Mapping[Environment, Added]) -> list[list[str]]:
    return [
        ["environment", ">added", ">already there"],
        *(
            [describe(environment), f"{added.new:,}", f"{added.known:,}"]
            for environment, added in counts.items()
        ),
    ]
