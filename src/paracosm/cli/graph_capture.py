"""`paracosm graph capture`: the graph of a model's training step, without running it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from paracosm.cli.capture_flags import (
    BATCH,
    Batch,
    Classes,
    Device,
    Dropout,
    Dtype,
    Foreach,
    Optimizer,
    Shape,
    Train,
    sizes,
)
from paracosm.cli.display import grid, printer
from paracosm.cli.graph import Force, check_output
from paracosm.cli.options import Json, Quiet
from paracosm.results import to_json
from paracosm.units import format_duration, format_size


def capture(
    model: Annotated[
        str, typer.Argument(help="built-in model, or package.module:factory of your own")
    ],
    batch: Batch = BATCH,
    shape: Shape = None,
    classes: Classes = None,
    dtype: Dtype = "float32",
    optimizer: Optimizer = "sgd",
    foreach: Foreach = False,
    dropout: Dropout = False,
    train: Train = True,
    ranks: Annotated[int, typer.Option(help="of the job; the graph is that of rank 0")] = 1,
    parallel: Annotated[
        str, typer.Option(help="how ranks share the model: none, fsdp2, tensor, fsdp2+tensor")
    ] = "none",
    tensor_ranks: Annotated[
        int, typer.Option(help="ranks that split a layer, with fsdp2+tensor")
    ] = 1,
    device: Device = "cpu",
    out: Annotated[Path | None, typer.Option(help="graph file to write")] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Capture a model's training step, op by op, without computing or allocating anything.

    Your own factory returns a module (give its --shape), (module, inputs), or a
    paracosm.graphs.capture.Workload; it may take batch, shape and classes.

    Example: paracosm graph capture gpt-small --batch 8 --out gpt.graph
    """
    from paracosm.graphs import save_graph
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.graphs.capture import capture as capture_step
    from paracosm.graphs.summary import summarize

    check_output(json, quiet, out, force)
    options = CaptureOptions(
        model=model,
        batch=batch,
        shape=sizes(shape),
        classes=classes,
        dtype=dtype,
        optimizer=optimizer,
        foreach=foreach,
        dropout=dropout,
        train=train,
        ranks=ranks,
        parallel=parallel,
        tensor_ranks=tensor_ranks,
        device=device,
    )
    began = time.perf_counter()
    with _working(f"capturing {options}", hidden=json or quiet):
        graph = capture_step(options)
    summary = {**summarize(graph), "wall_time": time.perf_counter() - began}
    if out is not None:
        save_graph(graph, out)
    if json:
        typer.echo(to_json(summary), nl=False)
    elif not quiet:
        _show(str(options), summary, out)
    return 0


def _working(what: str, hidden: bool) -> contextlib.AbstractContextManager[Any]:
    """Show on a terminal that something goes on; nobody knows how many ops there will be."""
    console = Console(stderr=True)
    return contextlib.nullcontext() if hidden or not console.is_terminal else console.status(what)


def _show(what: str, summary: Mapping[str, Any], out: Path | None) -> None:
    say = printer()
    held = {kind: format_size(size) for kind, size in summary["resident"].items() if size}
    facts = {
        "nodes": f"{summary['nodes']:,}, {summary['distinct_ops']:,} distinct ops",
        "by phase": _counts(summary["phases"]),
        "by resource": _counts(summary["resources"]),
        "work": f"{summary['flops']:.4g} flop, {format_size(summary['bytes'])} read and written",
        "held throughout": ", ".join(f"{kind} {size}" for kind, size in held.items()),
        "peak memory": format_size(summary["peak_memory"] or 0),
        "captured in": format_duration(summary["wall_time"]),
    }
    say(what)
    say(grid([("", ""), *facts.items()]))
    if out is not None:
        say(str(out))


def _counts(parts: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(f"{name} {part['nodes']:,}" for name, part in parts.items())
