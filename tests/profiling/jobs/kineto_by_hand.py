"""Kineto traces written by hand; times are in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def span(name: str, begin: float, length: float, **arguments: Any) -> Event:
    """Return an op of the loop's thread."""
    where = {"pid": 1, "tid": 1, "ts": begin, "dur": length}
    return {"ph": "X", "cat": "cpu_op", "name": name, **where, "args": arguments}


def mark(name: str, begin: float, length: float) -> Event:
    return {**span(name, begin, length), "cat": "user_annotation"}


def forward(name: str, begin: float, length: float, number: int, *shapes: list[int]) -> Event:
    dims = {"Input Dims": list(shapes), "Input type": ["float"] * len(shapes)}
    return span(name, begin, length, **{"Sequence number": number, "Fwd thread id": 0}, **dims)


def backward(begin: float, length: float, number: int) -> Event:
    numbers = {"Sequence number": number, "Fwd thread id": 1}
    return span("autograd::engine::evaluate_function: MmBackward0", begin, length, **numbers)


def gradient(begin: float, length: float, shape: list[int], kind: str = "float") -> list[Event]:
    dims = {"Input Dims": [shape], "Input type": [kind]}
    name = "torch::autograd::AccumulateGrad"
    return [
        span(f"autograd::engine::evaluate_function: {name}", begin, length),
        span(name, begin, length, **dims),
    ]


def step_of(number: int, at: float, **changes: float) -> list[Event]:
    """Return a step of 100 us and two layers, the first of 3x2 and the second of 5x3 numbers.

    5 us nothing, 10 first, 5 nothing, 20 second, 20 its backward, 10 gradient, 2 nothing, 8 the
    first's backward, 5 gradient, 1 nothing, 10 optimizer, 4 nothing.
    """
    return [
        mark(f"ProfilerStep#{number}", at, 100),
        forward("aten::first", at + 5, 10, 2 * number, [4, 2], [3, 2]),
        forward("aten::second", at + 20, 20, 2 * number + 1, [4, 3], [5, 3]),
        backward(at + 40, 20, 2 * number + 1),
        *gradient(at + 60, 10, [5, 3]),
        backward(at + 72, 8, 2 * number),
        *gradient(at + 80, 5, [3, 2]),
        mark("Optimizer.step#SGD.step", at + 86, changes.get("optimizer", 10)),
        span("aten::add_", at + 87, 2),
    ]


def written(folder: Path, events: list[Event], **header: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, **header}))
    return path


def kernel(name: str, begin: float, length: float, number: int, stream: int = 7) -> Event:
    event = span(name, begin, length, device=0, stream=stream, correlation=number)
    return {**event, "cat": "kernel", "pid": 0, "tid": stream}


def launch(begin: float, number: int) -> Event:
    return {**span("cudaLaunchKernel", begin, 1, correlation=number), "cat": "cuda_runtime"}


def without(events: list[Event], word: str) -> list[Event]:
    return [event for event in events if word not in event["name"]]
