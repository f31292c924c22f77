"""TensorFlow's timeline, a Chrome trace of one step, as a graph with measured durations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.contents import contents
from paracosm.graphs.graph import Graph
from paracosm.graphs.importers.tensorflow.step_ops import StepOp, graph_of_step

__all__ = ["Event", "read_timeline", "timeline_events", "timeline_ops"]

Event = dict[str, Any]


def read_timeline(path: Path) -> Graph:
    """Read what `timeline.Timeline(...).generate_chrome_trace_format()` returned.

    Raises:
        InputError: no JSON, no such timeline, an op that lacks a field, with the field.
    """
    ops = timeline_ops(timeline_events(path), str(path))
    return graph_of_step(ops, str(path), {"file": path.name, "form": "timeline"})


def timeline_events(path: Path) -> list[Event]:
    """Return the events of a Chrome trace.

    Raises:
        InputError: no JSON, no such trace.
    """
    where = str(path)
    data = contents(path)
    try:
        found = json.loads(data)
        events = found["traceEvents"]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: JSON that is cut off or damaged: {error}") from None
    except (KeyError, TypeError):
        raise InputError(f'{where}: no timeline: it lacks "traceEvents"') from None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise InputError(f'{where}: no timeline: "traceEvents" is no list of events')
    return events


def timeline_ops(events: Sequence[Event], where: str) -> list[StepOp]:
    """Return the ops among a timeline's events.

    Raises:
        InputError: there are none; one lacks a field, which is named.
    """
    devices = _devices(events)
    ops = [
        _op(event, position, devices, where)
        for position, event in enumerate(events)
        if event.get("ph") == "X" and str(event.get("cat", "")).lower() == "op"
    ]
    if not ops:
        raise InputError(
            f'{where}: no timeline of TensorFlow: no event has "cat": "Op" (a trace of PyTorch is '
            "read by paracosm replay)"
        )
    return ops


def _devices(events: Sequence[Event]) -> dict[Any, str]:
    """Return the device of each process: "/job:.../gpu:0 Compute" without the last word."""
    found = {}
    for event in events:
        arguments = event.get("args")
        if event.get("name") == "process_name" and isinstance(arguments, dict):
            found[str(event.get("pid"))] = str(arguments.get("name", "")).removesuffix(" Compute")
    return found


def _op(event: Event, position: int, devices: dict[Any, str], where: str) -> StepOp:
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        raise InputError(f'{where}: event {position} lacks "args"')
    for key in ("name", "op"):
        if not isinstance(arguments.get(key), str):
            raise InputError(f'{where}: event {position} lacks "args.{key}"')
    times = [event.get(key) for key in ("ts", "dur")]
    for key, value in zip(("ts", "dur"), times, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
            raise InputError(f'{where}: event {position} ({arguments["name"][:60]}): "{key}" is '
                             f"{value!r}, no number of microseconds")  # fmt: skip
    inputs = [
        arguments[key]
        for key in sorted(
            (key for key in arguments if key.startswith("input") and key[5:].isdecimal()),
            key=lambda key: int(key[5:]),
        )
        if isinstance(arguments[key], str)
    ]
    return StepOp(
        name=arguments["name"],
        op=arguments["op"],
        inputs=tuple(inputs),
        device=devices.get(str(event.get("pid")), ""),
        start=round(float(times[0] or 0) * 1000),
        duration=float(times[1] or 0) / 1e6,
    )
