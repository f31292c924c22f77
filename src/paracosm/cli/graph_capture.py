"""`paracosm graph capture`, and the flags of every verb that captures a model."""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import ForceFile, Json, Quiet, check_output, flag, named, with_flags
from paracosm.cli.verbs import INTERRUPTED
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.run import capture_script
from paracosm.errors import InputError
from paracosm.files import temporary_folder
from paracosm.graphs import load_graph, save_graph
from paracosm.graphs.capture import capture as capture_step
from paracosm.graphs.capture.options import CaptureOptions, parse_shape
from paracosm.graphs.summary import summarize
from paracosm.prediction.config import PredictConfig
from paracosm.results.kind import Hooks
from paracosm.units import format_duration, format_size
from paracosm.validation import validated

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
    model: Annotated[
        list[str] | None,
        Argument(
            help="built-in model, or package.module:factory of your own; with --script, the "
            "script's arguments"
        ),
    ] = None,
    *,
    ranks: Annotated[int, Option(help="of the job; the graph is that of rank 0")] = 1,
    parallel: Annotated[
        str, Option(help="how ranks share the model: none, fsdp2, tensor, fsdp2+tensor")
    ] = "none",
    tensor_ranks: Annotated[int, Option(help="ranks that split a layer, with fsdp2+tensor")] = 1,
    device: Device = "cpu",
    script: Annotated[
        str | None,
        Option(
            help="in place of a model: a training script, or module:NAME; its arguments after --"
        ),
    ] = None,
    hardware: Annotated[
        str | None, Option(help="with --script: the GPU that it finds (paracosm hardware list)")
    ] = None,
    world_size: Annotated[int, Option(help="with --script: ranks of the job")] = 1,
    iterations: Annotated[
        int, Option(min=2, help="with --script: which iteration becomes the graph")
    ] = 3,
    out: Annotated[Path | None, Option(help="graph file to write")] = None,
    force: ForceFile = False,
    json: Json = False,
    quiet: Quiet = False,
    **captured: Any,
) -> int:
    """Capture a training step, op by op, without computing or allocating anything.

    Your own factory returns a module (give its --shape), (module, inputs), or a
    paracosm.graphs.capture.Workload; it may take batch, shape and classes.

    Example: paracosm graph capture gpt-small --batch 8 --out gpt.graph

    Example: paracosm graph capture --script train.py --hardware h100-sxm --out train.graph
    """
    check_output(out, force)
    words = model or []
    if script is not None:
        for name, value in captured.items():
            if value != PredictConfig.model_fields[name].default:
                raise InputError(f"--{name} has no effect with --script: the script says it")
        if (ranks, parallel, tensor_ranks, device) != (1, "none", 1, "cpu"):
            raise InputError("--script shares its model itself: give --world-size and --hardware")
        asked = {"script": script, "arguments": words, "world_size": world_size}
        asked |= {"iterations": iterations, "output": "none" if quiet else "stderr"}
        return _capture_script(asked, hardware, out, json, quiet)
    if (hardware, world_size, iterations) != (None, 1, 3):
        raise InputError("--hardware, --world-size and --iterations are of --script train.py")
    if len(words) != 1:
        raise InputError("name one model, or a script: paracosm graph capture --script train.py")
    options = options_of(
        words[0],
        ranks=ranks,
        parallel=parallel,
        tensor_ranks=tensor_ranks,
        device=device,
        **captured,
    )
    began = time.perf_counter()
    with _working(f"capturing {options}", hidden=json or quiet):
        graph = capture_step(options)
    summary = {**summarize(graph), "wall_time": time.perf_counter() - began}
    if out is not None:
        save_graph(graph, out)
    show_result(summary, json, quiet, lambda: _show_capture(str(options), summary, out))
    return 0


def _capture_script(
    asked: dict[str, Any], hardware: str | None, out: Path | None, json: bool, quiet: bool
) -> int:
    if hardware is None:
        raise InputError("--script runs on a GPU that is not there: add --hardware h100-sxm")
    config = validated(DeviceEmulateConfig, asked | {"hardware": hardware}, "command line")
    config.check()
    began = time.perf_counter()
    with temporary_folder() as folder:
        path = folder / "step.graph"
        recorded = capture_script(config, Hooks(), path)
        if recorded.failure is not None:
            print(f"paracosm: {config.script}: {recorded.failure}", file=sys.stderr)
            return INTERRUPTED if recorded.interrupted else 1
        graph = load_graph(path)
    about = {**graph.provenance, "source": "script", "script": str(config.script)}
    about |= {"arguments": list(config.arguments), "hardware": config.device.name}
    graph = replace(graph, provenance=about | {"world_size": config.world, "rank": config.rank})
    summary = {**summarize(graph), "wall_time": time.perf_counter() - began}
    if out is not None:
        save_graph(graph, out)
    title = f"an iteration of {config.script} on {config.device.name}"
    show_result(summary, json, quiet, lambda: _show_capture(title, summary, out))
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
        **(_facts_of_script(made) if made["source"] == "script" else _facts_of_model(made)),
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


def _facts_of_model(made: Mapping[str, Any]) -> dict[str, str]:
    optimizer = str(made["optimizer"]) if made["train"] else "none"
    return {"dtype": str(made["dtype"]), "optimizer": optimizer}


def _facts_of_script(made: Mapping[str, Any]) -> dict[str, str]:
    """Return what the graph is of, and what a strategy is to say of it."""
    units = ("tokens", "images", "examples")
    batch = [f"{made[unit]:,} {unit}" for unit in units if unit in made]
    facts = {"batch": ", ".join(batch) or "not known"}
    if (count := made["microbatches"]) > 1:
        facts["micro-batches"] = (
            f"{count}, of which this is one: --strategy ddp,microbatches={count} has all"
        )
    if left_out := made.get("left_out"):
        sizes = ", ".join(f"{kind} {format_size(size)}" for kind, size in left_out.items())
        facts["left out"] = f"collectives of process groups, which strategies bring: {sizes}"
    return facts


def _counts(parts: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(f"{name} {part['nodes']:,}" for name, part in parts.items())
