"""`paracosm graph show`: what a graph computes, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from paracosm.cli.display import grid, printer
from paracosm.cli.options import Json
from paracosm.results import to_json
from paracosm.units import format_duration, format_size

__all__ = ["show"]


def show(
    graph: Annotated[Path, typer.Argument(help="a graph file")],
    ops: Annotated[int, typer.Option(min=0, help="how many ops to list in each table")] = 10,
    json: Json = False,
) -> int:
    """Show a graph: its nodes, work and memory, by phase and by op.

    Example: paracosm graph show gpt.graph --ops 5
    """
    from paracosm.graphs import load_graph
    from paracosm.graphs.summary import summarize

    summary = summarize(load_graph(graph), largest=ops)
    if json:
        typer.echo(to_json(summary), nl=False)
    else:
        _show(summary, ops)
    return 0


def _show(summary: Mapping[str, Any], ops: int) -> None:
    say = printer()
    say(grid([("", ""), *_facts(summary).items()]))
    sums = (
        (word, *_work(summary[kind][word]))
        for kind in ("phases", "resources")
        for word in summary[kind]
    )
    say()
    say(grid([("phase, resource", *_WORK), *sums]))
    names = list(summary["ops"].items())
    if not ops or not names:
        return
    by_name = (
        (name, f"{entry['nodes']:,}", f"{entry['distinct']:,}", *_work(entry)[1:])
        for name, entry in names[:ops]
    )
    say()
    say(grid([("op", ">nodes", ">distinct", *_WORK[1:]), *by_name]))
    if len(names) > ops:
        say(f"and {len(names) - ops:,} more op names (--ops N shows N)")
    largest = ((_call(entry), *_work(entry)) for entry in summary["largest_ops"])
    say()
    say(grid([("largest ops, each call", *_WORK), *largest]))


_WORK = (">nodes", ">flops", ">bytes")


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines above the tables."""
    facts = {
        "nodes": f"{summary['nodes']:,}, {summary['distinct_ops']:,} distinct ops",
        "dependencies": (
            f"{summary['dependencies']:,}, longest chain {summary['longest_chain']:,} nodes"
        ),
        "work": f"{_flops(summary['flops'])}, {format_size(summary['bytes'])} read and written",
    }
    if summary["nodes_with_duration"]:
        facts["duration"] = (
            f"{format_duration(summary['duration'])}, the sum of the "
            f"{summary['nodes_with_duration']:,} nodes whose duration is known"
        )
    if any(summary["resident"].values()):
        held = [f"{what} {format_size(size)}" for what, size in summary["resident"].items() if size]
        facts["resident"] = ", ".join(held)
    if summary["peak_memory"] is not None:
        facts["peak memory"] = (
            f"{format_size(summary['peak_memory'])} at {summary['peak_memory_at']}"
        )
    for key, value in summary["provenance"].items():
        facts[key] = _plain(value)
    return facts


def _plain(value: Any) -> str:
    """Return a value of provenance as a person would write it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _work(entry: Mapping[str, int]) -> tuple[str, str, str]:
    return f"{entry['nodes']:,}", _flops(entry["flops"]), format_size(entry["bytes"])


def _call(entry: Mapping[str, Any]) -> str:
    """Return an op with the shapes of its tensors: "aten.mm.default(64x512 512x10)"."""
    from paracosm.graphs.graph import shapes_of

    if not entry["arguments"]:
        return str(entry["name"])
    shapes = shapes_of(entry["arguments"])
    shown = shapes[:_TENSORS] + (["..."] if len(shapes) > _TENSORS else [])
    return f"{entry['name']}({' '.join(shown)})"


_TENSORS = 4
"""Tensors of a call that a line shows."""


def _flops(flops: int) -> str:
    """Return "4.12 Gflop"."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if flops >= 10**power:
            return f"{flops / 10**power:,.3g} {prefix}flop"
    return f"{flops} flop"
