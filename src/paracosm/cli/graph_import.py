"""`paracosm graph import`: a graph from a file that another program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.results import to_json

if TYPE_CHECKING:
    from paracosm.graphs import Graph
    from paracosm.timeline.kineto import OpSpan

__all__ = ["import_"]


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="model or trace of one rank: ONNX, TensorFlow (GraphDef, SavedModel, RunMetadata, "
            "timeline), PyTorch (execution trace, profiler), Chakra, jaxpr; gzipped or not"
        ),
    ],
    out: Annotated[Path, typer.Option(help="graph file to write")],
    format_: Annotated[
        str | None, typer.Option("--format", help="of the file; else known by its content")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="size that a model leaves open: batch=8, sequence=128 (ONNX, GraphDef)"),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="add a backward pass and an optimizer (ONNX)")
    ] = False,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd (if left out) or adam, with --train")
    ] = None,
    fetch: Annotated[
        list[str] | None, typer.Option(help="only what this node needs (GraphDef)")
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            help="which step, else the last (PyTorch execution trace), the median (profiler)"
        ),
    ] = None,
    kineto: Annotated[
        Path | None,
        typer.Option(help="profiler's trace of the same run (PyTorch execution trace): durations"),
    ] = None,
    drop_missing: Annotated[
        bool,
        typer.Option(
            "--drop-missing", help="leave out dependencies on nodes that are not there (Chakra)"
        ),
    ] = False,
    data_only: Annotated[
        bool, typer.Option("--data-only", help="leave out control dependencies (Chakra)")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Read a model or a trace that another program wrote, and write it as a graph.

    Example: paracosm graph import model.onnx --train --size batch=8 --out model.graph
    """
    from paracosm.graphs import save_graph
    from paracosm.graphs.importers import import_graph
    from paracosm.graphs.summary import summarize

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    if out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    graph = import_graph(
        file,
        format_,
        sizes=_sizes(size or []),
        train=train,
        optimizer=optimizer,
        fetch=tuple(fetch or ()),
        step=step,
        times=None if kineto is None else _times(kineto),
        drop_missing=drop_missing,
        data_only=data_only,
    )
    save_graph(graph, out)
    if json:
        typer.echo(to_json({"file": out, **summarize(graph)}), nl=False)
    elif not quiet:
        typer.echo(f"{out}: {', '.join(_said(graph))}")
    return 0


def _sizes(given: list[str]) -> dict[str, int]:
    sizes = {}
    for text in given:
        name, _, number = text.partition("=")
        if not name or not number.isdecimal() or int(number) < 1:
            raise InputError(f"--size {text}: give a name and a number of 1 or more, batch=8")
        sizes[name] = int(number)
    return sizes


def _times(path: Path) -> list[OpSpan]:
    from paracosm.timeline.kineto import op_times, read_kineto

    times = list(op_times(read_kineto(path)))
    if not times:
        raise InputError(f"{path}: the trace has no ops of the host: activities=[CPU] records them")
    return times


def _said(graph: Graph) -> list[str]:
    """Return what there is to say of the graph that was read, and of what was changed."""
    found = graph.provenance
    said = [f"{len(graph):,} nodes"]
    if found.get("renumbered"):
        said.append("numbered anew in the order of issue")
    if dropped := found.get("dropped_dependencies", 0):
        said.append(f"{dropped:,} dependencies on missing nodes left out")
    if not found.get("control_dependencies", True):
        said.append("control dependencies left out")
    if found.get("step") is not None:
        said.append(f"step {found['step']} of {', '.join(map(str, found['steps']))}")
    if unknown := found.get("without_shape", 0):
        sizes = found.get("unknown_sizes") or []
        hint = f" (--size {sizes[0]}=N gives the missing size)" if sizes else ""
        said.append(f"{unknown:,} values without a shape, so without work{hint}")
    if loops := found.get("loops_counted_once", 0):
        said.append(f"{loops:,} loops counted once")
    if inside := found.get("not_looked_into"):
        said.append(f"not looked into: {', '.join(inside)}")
    if missing := found.get("inputs_not_traced", 0):
        said.append(f"{missing:,} inputs were not traced")
    if missing := found.get("without_duration") or 0:
        said.append(f"{missing:,} without a duration")
    if missing := found.get("collectives_without_group", 0):
        said.append(f"{missing:,} collectives whose ranks the trace does not name")
    return said
