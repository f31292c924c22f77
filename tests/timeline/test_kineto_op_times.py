"""Seconds of the device that each op of a Kineto trace is answerable for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paracosm.timeline.kineto import read_kineto
from paracosm.timeline.kineto.device import op_times


def span(
    category: str, name: str, begin: int, length: int, tid: int, **args: Any
) -> dict[str, Any]:
    keys = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid}
    return {**keys, "ts": begin, "dur": length, "args": args}


def test_an_op_takes_as_long_as_what_it_launched_itself_and_through_others(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    device = {"device": 0, "stream": 7}
    events = [
        span("cpu_op", "aten::linear", 0, 100, 1, **{"Record function id": 1}),
        span("cpu_op", "aten::addmm", 10, 50, 1, **{"Record function id": 2}),
        span("cuda_runtime", "cudaLaunchKernel", 20, 5, 1, correlation=11),
        span("cuda_runtime", "cudaLaunchKernel", 30, 5, 1, correlation=12),
        span("cpu_op", "aten::empty", 70, 10, 1, **{"Record function id": 3}),
        span("cuda_runtime", "cudaLaunchKernel", 40, 5, 2, correlation=13),
        span("kernel", "gemm", 200, 300, 7, correlation=11, **device),
        span("kernel", "bias", 500, 20, 7, correlation=12, **device),
        span("kernel", "of another thread", 600, 1000, 7, correlation=13, **device),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    found = {op.name: (op.record, round(op.seconds * 1e6), op.on_device)
             for op in op_times(read_kineto(path))}  # fmt: skip
    assert found == {
        "aten::linear": (1, 320, True),
        "aten::addmm": (2, 320, True),
        "aten::empty": (3, 10, False),
    }
