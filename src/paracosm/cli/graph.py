"""`paracosm graph show`, `export` and `import`: graph files and their contents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import ForceFile, Json, Quiet, check_output
from paracosm.errors import InputError
from paracosm.graphs import Graph, load_graph, save_graph
from paracosm.graphs.chakra import write_chakra
from paracosm.graphs.graph import shapes_of
from paracosm.graphs.importers import import_graph
from paracosm.graphs.summary import summarize
from paracosm.timeline.kineto import op_times, read_kineto
from paracosm.units import format_duration, format_size, parse_whole


def show(
    graph: Annotated[Path, Argument(help="a graph file")],
    ops: Annotated[int, Option(min=0, help="how many ops to list in each table")] = 10,
    json: Json = False,
) -> int:
    """Show a graph: its nodes, work and memory, by phase and by op.

    Example: paracosm graph show gpt.graph --ops 5
    """
    summary = summarize(load_graph(graph), largest=ops)
    show_result(summary, json, False, lambda: _show(summary, ops))
    return 0


def _show(summary: Mapping[str, Any], ops: int) -> None:
    say = printer()
    say(aligned([("", ""), *_fact_rows(summary).items()]))
    sums = (
        (word, *_work_cells(summary[kind][word]))
        for kind in ("phases", "resources")
        for word in summary[kind]
    )
    say()
    say(aligned([("phase, resource", *_WORK), *sums]))
    names = list(summary["ops"].items())
    if not ops or not names:
        return
    by_name = (
        (name, f"{entry['nodes']:,}", f"{entry['distinct']:,}", *_work_cells(entry)[1:])
        for name, entry in names[:ops]
    )
    say()
    say(aligned([("op", ">nodes", ">distinct", *_WORK[1:]), *by_name]))
    if len(names) > ops:
        say(f"and {len(names) - ops:,} more op names (--ops N shows N)")
    largest = ((_call_text(entry), *_work_cells(entry)) for entry in summary["largest_ops"])
    say()
    say(aligned([("largest ops, each call", *_WORK), *largest]))


_WORK = (">nodes", ">flops", ">bytes")


def _fact_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    edges, chain = summary["dependencies"], summary["longest_chain"]
    facts = {
        "nodes": f"{summary['nodes']:,}, {summary['distinct_ops']:,} distinct ops",
        "dependencies": f"{edges:,}, longest chain {chain:,} nodes",
        "work": f"{_flops(summary['flops'])}, {format_size(summary['bytes'])} read and written",
    }
    if summary["nodes_with_duration"]:
        facts["duration"] = (
            f"{format_duration(summary['duration'])}, the sum over the "
            f"{summary['nodes_with_duration']:,} nodes with a known duration"
        )
    if any(summary["resident"].values()):
        held = [f"{kind} {format_size(size)}" for kind, size in summary["resident"].items() if size]
        facts["resident"] = ", ".join(held)
    if (peak := summary["peak_memory"]) is not None:
        facts["peak memory"] = f"{format_size(peak)} at {summary['peak_memory_at']}"
    for key, value in summary["provenance"].items():
        facts[key] = _as_text(value)
    return facts


def _as_text(value: Any) -> str:
    """Return a value of provenance as readable text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_as_text(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(_as_text(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _work_cells(entry: Mapping[str, int]) -> tuple[str, str, str]:
    return f"{entry['nodes']:,}", _flops(entry["flops"]), format_size(entry["bytes"])


def _call_text(entry: Mapping[str, Any]) -> str:
    """Return an op with the shapes of its tensors: "aten.mm.default(64x512 512x10)"."""
    if not entry["arguments"]:
        return str(entry["name"])
    shapes = shapes_of(entry["arguments"])
    shown = shapes[:_TENSORS] + (["..."] if len(shapes) > _TENSORS else [])
    return f"{entry['name']}({' '.join(shown)})"


_TENSORS = 4  # of a call that a line shows


def _flops(flops: int) -> str:
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if flops >= 10**power:
            return f"{flops / 10**power:,.3g} {prefix}flop"
    return f"{flops} flop"


def export(
    graph: Annotated[Path, Argument(help="a graph file")],
    out: Annotated[Path, Option(help="Chakra trace to write: .et (protobuf) or .json")],
    force: ForceFile = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a graph as an MLCommons Chakra execution trace, which imports as the same graph.

    Example: paracosm graph export gpt.graph --out gpt.et
    """
    check_output(out, force)
    loaded = load_graph(graph)
    write_chakra(loaded, out)
    sentence = f"{out}: {len(loaded):,} nodes"
    show_result({"file": out, "nodes": len(loaded)}, json, quiet, lambda: typer.echo(sentence))
    return 0


def import_(
    file: Annotated[
        Path,
        Argument(
            help="model or trace of one rank: ONNX, TensorFlow (GraphDef, SavedModel, RunMetadata, "
            "timeline), PyTorch (execution trace, profiler), Chakra, jaxpr; gzipped or not"
        ),
    ],
    out: Annotated[Path, Option(help="graph file to write")],
    format_: Annotated[
        str | None, Option("--format", help="of the file; by default detected from its content")
    ] = None,
    size: Annotated[
        list[str] | None,
        Option(help="size that a model leaves symbolic: batch=8, sequence=128 (ONNX, GraphDef)"),
    ] = None,
    train: Annotated[
        bool, Option("--train", help="add a backward pass and an optimizer (ONNX)")
    ] = False,
    optimizer: Annotated[str | None, Option(help="sgd (the default) or adam, with --train")] = None,
    fetch: Annotated[list[str] | None, Option(help="only what this node needs (GraphDef)")] = None,
    step: Annotated[
        int | None,
        Option(
            help="which step; default: the last that has ops (PyTorch execution trace), the median "
            "(profiler)"
        ),
    ] = None,
    kineto: Annotated[
        Path | None,
        Option(help="profiler's trace of the same run (PyTorch execution trace): durations"),
    ] = None,
    communication: Annotated[
        list[str] | None,
        Option(help='kernels that communicate: "my_ring*", "my_ring*=all_reduce" (profiler)'),
    ] = None,
    drop_missing: Annotated[
        bool,
        Option("--drop-missing", help="leave out dependencies on missing nodes (Chakra)"),
    ] = False,
    data_only: Annotated[
        bool, Option("--data-only", help="leave out control dependencies (Chakra)")
    ] = False,
    force: ForceFile = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Read a model or a trace that another program wrote, and write it as a graph.

    Example: paracosm graph import model.onnx --train --size batch=8 --out model.graph
    """
    check_output(out, force)
    times = None if kineto is None else list(op_times(read_kineto(kineto)))
    if times == []:
        raise InputError(
            f"{kineto}: the trace has no ops of the host: activities=[CPU] records them"
        )
    graph = import_graph(
        file,
        format_,
        sizes=_sizes(size or []),
        train=train,
        optimizer=optimizer,
        fetch=tuple(fetch or ()),
        step=step,
        times=times,
        communication=tuple(communication or ()),
        drop_missing=drop_missing,
        data_only=data_only,
    )
    save_graph(graph, out)
    sentence = f"{out}: {', '.join(_import_notes(graph))}"
    show_result({"file": out, **summarize(graph)}, json, quiet, lambda: typer.echo(sentence))
    return 0


def _sizes(texts: list[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        size = parse_whole(number)
        if not name or not size:
            raise InputError(f"--size {text}: give a name and a number of 1 or more, batch=8")
        if name in sizes:
            raise InputError(f"--size {name} is given twice")
        sizes[name] = size
    return sizes


def _uneven_steps(provenance: Mapping[str, Any]) -> list[str]:
    """Say of an execution trace which steps have no ops, and if the one that is read has few."""
    counts = dict(zip(provenance["steps"], provenance.get("ops_of_steps", ()), strict=False))
    empty = ", ".join(str(number) for number, count in counts.items() if not count)
    notes = [f"no ops in step {empty}"] if empty else []
    fullest = max(counts, key=lambda number: counts[number], default=None)
    if fullest is not None and counts[provenance["step"]] < counts[fullest] / 2:
        few, many = counts[provenance["step"]], counts[fullest]
        notes.append(
            f"it has {few:,} ops, step {fullest} {many:,}: --step {fullest} reads that one"
        )
    return notes


def _import_notes(graph: Graph) -> list[str]:
    provenance = graph.provenance
    notes = [f"{len(graph):,} nodes"]
    if provenance.get("renumbered"):
        notes.append("renumbered in the order of issue")
    if dropped := provenance.get("dropped_dependencies", 0):
        notes.append(f"{dropped:,} dependencies on missing nodes left out")
    if not provenance.get("control_dependencies", True):
        notes.append("control dependencies left out")
    if provenance.get("step") is not None:
        notes.append(f"step {provenance['step']} of {', '.join(map(str, provenance['steps']))}")
        notes += _uneven_steps(provenance)
    notes += [
        f"step {step}: {fault}" for step, fault in provenance.get("steps_left_out", {}).items()
    ]
    notes += provenance.get("notes", [])
    if unknown := provenance.get("without_shape", 0):
        sizes = provenance.get("unknown_sizes") or []
        hint = f" (--size {sizes[0]}=N gives the missing size)" if sizes else ""
        notes.append(f"{unknown:,} values without a shape, so without work{hint}")
    if inside := provenance.get("not_looked_into"):
        notes.append(f"contents not read: {', '.join(inside)}")
    for key, noun in (
        ("loops_counted_once", "loops counted once"),
        ("inputs_not_traced", "inputs were not traced"),
        ("without_duration", "without a duration"),
        ("collectives_without_group", "collectives whose ranks the trace does not name"),
    ):
        if count := provenance.get(key):
            notes.append(f"{count:,} {noun}")
    return notes
