"""How fast Kineto traces are read, and in how much memory.

    python benchmarks/kineto_reading.py [FILE ...] [--events N]

Without files, one of N events (123,000) is made: calls, ops, kernels and arrows between them, with
the arguments that PyTorch writes, as JSON and gzipped. Beside ours stands `json.load`, which only
builds the objects. Memory is what the process holds at most beyond what it held before, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from paracosm.timeline.kineto import read_kineto

EVENTS = 123_000
OP = "aten::convolution_backward"
KERNEL = "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 32, true, 1>(float, float)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="traces")
    parser.add_argument("--events", type=int, default=EVENTS, help="of the trace that is made")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = asked.files or make(Path(folder), asked.events)
        for file in files:
            print(f"{file.name}: {file.stat().st_size / 1e6:,.1f} MB")
            for name, read in (("read_kineto", ours), ("json.load", theirs)):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    seconds, megabytes, count = pool.apply(measured, (read, file))
                print(f"  {name:12} {seconds:7.2f} s  {megabytes:9,.0f} MB  {count:,} rows")


def make(folder: Path, events: int) -> list[Path]:
    """Write a trace of so many events, plain and gzipped."""
    plain, packed = folder / "trace.json", folder / "trace.json.gz"
    with plain.open("w") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [\n')
        for number in range(events // 5):
            file.write(",\n".join(json.dumps(each) for each in group(number)))
            file.write(",\n")
        file.write(
            '{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}\n]}\n'
        )
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        while chunk := source.read(1 << 20):
            target.write(chunk)
    return [plain, packed]


def group(number: int) -> list[dict[str, Any]]:
    """Return an op, the call within it, the kernel that it launches, and both ends of the arrow."""
    start = 1_712_195_495_000_000 + 20 * number
    arrow = {"name": "ac2g", "cat": "ac2g", "id": number}
    args = {"External id": number, "correlation": number}
    return [
        span("cpu_op", OP, 7, start, 9.5, {"Ev Idx": number, "Input Dims": [[64, 64, 56, 56]]}),
        span("cuda_runtime", "cudaLaunchKernel", 7, start + 2.125, 5, {**args, "cbid": 211}),
        {"ph": "s", **arrow, "pid": 7, "tid": 7, "ts": start + 2.125},
        span("kernel", KERNEL, 0, start + 9, 10.25, {**args, "device": 0, "stream": 7}),
        {"ph": "f", "bp": "e", **arrow, "pid": 0, "tid": 7, "ts": start + 9},
    ]


def span(
    category: str, name: str, process: int, start: float, duration: float, args: dict[str, Any]
) -> dict[str, Any]:
    """Return a complete event."""
    where = {"pid": process, "tid": 7, "ts": start, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, **where, "args": args}


def measured(read: Any, file: Path) -> tuple[float, float, int]:
    """Return seconds, megabytes beyond those before, and rows."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    count = read(file)
    seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3, count


def ours(file: Path) -> int:
    """Read a trace into arrays."""
    return len(read_kineto(file))


def theirs(file: Path) -> int:
    """Read a trace into Python's objects."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        return len(json.load(opened)["traceEvents"])


if __name__ == "__main__":
    main()
