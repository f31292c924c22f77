"""Kineto traces made by hand: times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
MAIN, BACKWARD = 3, 4  # threads


def host(
    category: str, name: str, begin: float, end: float, thread: int = MAIN, **args: Any
) -> Event:
    """Return a span of a thread."""
    event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread}
    return {**event, "ts": begin, "dur": end - begin, "args": args}


def launch(number: int, begin: float, end: float, thread: int = MAIN) -> Event:
    """Return the call that launches the kernel of the same number."""
    return host("cuda_runtime", "cudaLaunchKernel", begin, end, thread, correlation=number)


def kernel(
    number: int, begin: float, end: float, name: str = "gemm", stream: int = 7, **args: Any
) -> Event:
    """Return what a call launched."""
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
    where = {"device": 0, "stream": stream, "correlation": number}
    return {**event, "ts": begin, "dur": end - begin, "args": {**where, **args}}


def step(number: int, begin: float, end: float) -> Event:
    """Return the mark of a step of the training loop."""
    return host("user_annotation", f"ProfilerStep#{number}", begin, end)


def all_reduce(
    number: int, begin: float, end: float, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
) -> Event:
    """Return a collective on a stream of its own."""
    return kernel(number, begin, end, name, 20)


def write(folder: Path, events: list[Event], rank: int | None = 0, world: int = 1) -> Path:
    """Write a trace, and return its path."""
    path = folder / f"rank{rank}.json"
    header = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return path


def two_ranks(folder: Path, late: float = 0.0) -> list[Path]:
    """Write a step of two ranks that meet once, 1 after 25 us; 1's clock is `late` behind.

    Rank 0 calls at 0 to 5, is there at 10 and leaves with rank 1 at 30; its kernel runs to 40.
    Rank 1 calls at 8 to 13 and is there at 25: both take 5 us.
    """
    first = [
        *(step(1, 0, 45), launch(1, 0, 5), all_reduce(1, 10, 30)),
        *(launch(2, 5, 10), kernel(2, 30, 40, stream=20)),
        host("cuda_runtime", "cudaDeviceSynchronize", 12, 42, correlation=3),
    ]
    second = [
        *(step(1, late, 45 + late), launch(1, 8 + late, 13 + late)),
        all_reduce(1, 25 + late, 30 + late),
    ]
    return [write(folder, first, 0, 2), write(folder, second, 1, 2)]
