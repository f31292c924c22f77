"""`paracosm graph import`: a graph from a file that another program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.study.plain import to_json

if TYPE_CHECKING:
    from paracosm.graphs import Graph

__all__ = ["import_"]


def import_(
    trace: Annotated[Path, typer.Argument(help="Chakra trace of one rank: .et or .json, or .gz")],
    out: Annotated[Path, typer.Option(help="graph file to write")],
    drop_missing: Annotated[
        bool,
        typer.Option("--drop-missing", help="leave out dependencies on nodes that are not there"),
    ] = False,
    data_only: Annotated[
        bool, typer.Option("--data-only", help="leave out control dependencies")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Read an MLCommons Chakra execution trace and write it as a graph.

    Example: paracosm graph import gpt.et --out again.graph
    """
    from paracosm.graphs import save_graph
    from paracosm.graphs.chakra import read_chakra
    from paracosm.graphs.summary import summarize

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    graph = read_chakra(trace, drop_missing, data_only)
    save_graph(graph, out)
    if json:
        typer.echo(to_json({"file": out, **summarize(graph)}), nl=False)
    elif not quiet:
        typer.echo(f"{out}: {', '.join(_said(graph))}")
    return 0


def _said(graph: Graph) -> list[str]:
    """Return what there is to say of the graph that was read, and of what was changed."""
    said = [f"{len(graph):,} nodes"]
    if graph.provenance.get("renumbered"):
        said.append("numbered anew in the order of issue")
    if dropped := graph.provenance.get("dropped_dependencies", 0):
        said.append(f"{dropped:,} dependencies on missing nodes left out")
    if not graph.provenance.get("control_dependencies", True):
        said.append("control dependencies left out")
    return said
