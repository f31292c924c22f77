"""`paracosm graph export`: a graph as a file that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.results import to_json

__all__ = ["export"]


def export(
    graph: Annotated[Path, typer.Argument(help="a graph file")],
    out: Annotated[Path, typer.Option(help="Chakra trace to write: .et (protobuf) or .json")],
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a graph as an MLCommons Chakra execution trace; importing it gives the same graph.

    Example: paracosm graph export gpt.graph --out gpt.et
    """
    from paracosm.graphs import load_graph
    from paracosm.graphs.chakra import write_chakra

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    found = load_graph(graph)
    write_chakra(found, out)
    if json:
        typer.echo(to_json({"file": out, "nodes": len(found)}), nl=False)
    elif not quiet:
        typer.echo(f"{out}: {len(found):,} nodes")
    return 0
