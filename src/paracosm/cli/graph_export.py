"""`paracosm graph export`: a graph as a file that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paracosm.errors import InputError

__all__ = ["export"]


def export(
    graph: Annotated[Path, typer.Argument(help="a graph file")],
    out: Annotated[Path, typer.Option(help="Chakra trace to write: .et (protobuf) or .json")],
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing but errors")] = False,
) -> int:
    """Write a graph as an MLCommons Chakra execution trace; importing it gives the same graph.

    Example: paracosm graph export gpt.graph --out gpt.et
    """
    from paracosm.graphs import load_graph
    from paracosm.graphs.chakra import write_chakra

    if out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    write_chakra(load_graph(graph), out)
    if not quiet:
        typer.echo(out)
    return 0
