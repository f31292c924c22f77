"""`paracosm graph capture`, and the flags of every verb that captures a model."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import ForceFile, Json, Quiet, check_output, flag, named, with_flags
from paracosm.graphs import save_graph
from paracosm.graphs.capture import capture as capture_step
from paracosm.graphs.capture.options import CaptureOptions, parse_shape
from paracosm.graphs.summary import summarize
from paracosm.prediction.config import PredictConfig
from paracosm.units import format_duration, format_size

DATABASE: Path = PredictConfig.model_fields["db"].default


def _flag(name: str, switch: bool = False) -> Any:
    """Return a flag with the help text of the same flag of `paracosm predict`."""
    names = [f"--{name}/--no-{name}"] if switch else []
    return Option(*names, help=PredictConfig.model_fields[name].description)


def _capture_flag(name: str) -> inspect.Parameter:
    field = PredictConfig.model_fields[name]
    kind = str | None if name == "shape" else field.annotation  # read here, as its flag is named
    return flag(name, kind, _flag(name, kind is bool), field.default)


_CAPTURE = ("batch", "shape", "classes", "dtype", "optimizer", "foreach", "dropout", "train")
with_capture_flags = with_flags([_capture_flag(name) for name in _CAPTURE])
"""Gives a command's `**captured` the flags that `options_of` takes."""

Shape = Annotated[str | None, _flag("shape")]
Classes = Annotated[int | None, _flag("classes")]
Device = Annotated[str, Option(help="cpu, or cuda where PyTorch has it")]


def sizes(text: str | None) -> tuple[int, ...] | None:
    """Read --shape, "3x32x32"."""
    return None if text is None else named("--shape", parse_shape, text)


def options_of(model: str, shape: str | None, **options: Any) -> CaptureOptions:
    return CaptureOptions(model=model, shape=sizes(shape), **options)


@with_capture_flags
def capture(
    model: Annotated[str, Argument(help="built-in model, or package.module:factory of your own")],
    *,
    ranks: Annotated[int, Option(help="of the job; the graph is that of rank 0")] = 1,
    parallel: Annotated[
        str, Option(help="how ranks share the model: none, fsdp2, tensor, fsdp2+tensor")
    ] = "none",
    tensor_ranks: Annotated[int, Option(help="ranks that split a layer, with fsdp2+tensor")] = 1,
    device: Device = "cpu",
    out: Annotated[Path | None, Option(help="graph file to write")] = None,
    force: ForceFile = False,
    json: Json = False,
    quiet: Quiet = False,
    **captured: Any,
) -> int:
    """Capture a model's training step, op by op, without computing or allocating anything.

    Your own factory returns a module (give its --shape), (module, inputs), or a
    paracosm.graphs.capture.Workload; it may take batch, shape and classes.

    Example: paracosm graph capture gpt-small --batch 8 --out gpt.graph
    """
    check_output(out, force)
    options = options_of(
        model, ranks=ranks, parallel=parallel, tensor_ranks=tensor_ranks, device=device, **captured
    )
    began = time.perf_counter()
    with _working(f"capturing {options}", hidden=json or quiet):
        graph = capture_step(options)
    summary = {**summarize(graph), "wall_time": time.perf_counter() - began}
    if out is not None:
        save_graph(graph, out)
    show_result(summary, json, quiet, lambda: _show_capture(str(options), summary, out))
    return 0


def _working(message: str, hidden: bool) -> contextlib.AbstractContextManager[Any]:
    """Show activity on a terminal; the number of ops is not known beforehand."""
    console = Console(stderr=True)
    return (
        contextlib.nullcontext() if hidden or not console.is_terminal else console.status(message)
    )


def _show_capture(title: str, summary: Mapping[str, Any], out: Path | None) -> None:
    say = printer()
    held = {kind: format_size(size) for kind, size in summary["resident"].items() if size}
    made = summary["provenance"]
    facts = {
        "dtype": str(made["dtype"]),
        "optimizer": str(made["optimizer"]) if made["train"] else "none",
        "nodes": f"{summary['nodes']:,}, {summary['distinct_ops']:,} distinct ops",
        "by phase": _counts(summary["phases"]),
        "by resource": _counts(summary["resources"]),
        "work": f"{summary['flops']:.4g} flop, {format_size(summary['bytes'])} read and written",
        "held throughout": ", ".join(f"{kind} {size}" for kind, size in held.items()),
        "peak memory": format_size(summary["peak_memory"] or 0),
        "captured in": format_duration(summary["wall_time"]),
    }
    say(title)
    say(aligned([("", ""), *facts.items()]))
    if out is not None:
        say(str(out))


def _counts(parts: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(f"{name} {part['nodes']:,}" for name, part in parts.items())
