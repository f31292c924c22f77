"""How much memory replaying a large trace takes, beside the size of its compressed files.

    python benchmarks/large_traces.py [--gigabytes 5] [--ranks 2] [--folder DIR]

Traces of a data-parallel job are made in DIR: ops with calls, kernels, arrows between them and
collectives, with the arguments that PyTorch's profiler writes, so many gigabytes of JSON together,
gzipped as they are written. They are then replayed in a process of their own, unchanged and with a
what-if. Memory is what that process holds at most, all of it and beyond what it held before
it read; the temporary file with the spans comes to 53 bytes each.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paracosm.replays import replay_traces, summarise_replays
from paracosm.report.runs import answer

LAYERS, OPS = 24, 40  # of a step: layers, each with so many ops and a collective
ADD = "at::native::AddFunctor<float>, at::detail::Array<char*, 3> >"
MEAN = "at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>"
KERNELS = (
    f"void at::native::vectorized_elementwise_kernel<4, {ADD}(int, {ADD})",
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn",
    "void cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)",
    f"void at::native::reduce_kernel<512, 1, {MEAN}, unsigned int, float, 4> >({MEAN})",
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
WHAT_IF = "links: bandwidth 2x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of JSON, together")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the traces are made [a temporary one]")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        start = time.perf_counter()
        plain, paths = make(folder, asked.ranks, asked.gigabytes * 1e9)
        packed = sum(path.stat().st_size for path in paths) / 1e6
        print(
            f"{asked.ranks} ranks, {plain / 1e9:.2f} GB of JSON, {packed:,.0f} MB gzipped, made in"
        )
        print(f"{time.perf_counter() - start:,.0f} s")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            before, most, seconds, text = pool.apply(measured, (paths,))
        print(text)
        print(f"replayed in {seconds:,.0f} s")
        print(f"memory at most  {most:7,.0f} MB, {most / packed:.2f} times the compressed size")
        beyond = most - before
        print(f"beyond before   {beyond:7,.0f} MB, {beyond / packed:.2f} times")


def measured(paths: list[Path]) -> tuple[float, float, float, str]:
    """Return megabytes before and at most, seconds, and the answer."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    start = time.perf_counter()
    summary = summarise_replays(replay_traces(paths, [WHAT_IF]))
    seconds = time.perf_counter() - start
    text = f"{len(summary.steps):,} steps, {summary.tasks:,} tasks, in {summary.parts} parts\n"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return before, most, seconds, text + answer(summary)


@dataclass
class Rank:
    """A rank whose trace is written: microseconds that its thread and streams have reached."""

    number: int
    file: gzip.GzipFile
    draw: random.Random
    host: float = 0.0
    device: float = 0.0
    count: int = 0
    size: int = 0
    lines: list[str] = field(default_factory=list)

    def put(self) -> None:
        data = "".join(self.lines).encode()
        self.size += len(data)
        self.file.write(data)
        self.lines.clear()


def make(folder: Path, ranks: int, size: float) -> tuple[int, list[Path]]:
    """Write traces with so many bytes of JSON together; return how many, and their paths."""
    paths = [folder / f"rank{number}.json.gz" for number in range(ranks)]
    all_ranks = [
        Rank(number, gzip.GzipFile(path, "wb", compresslevel=6), random.Random(number))
        for number, path in enumerate(paths)
    ]
    for rank in all_ranks:
        info = f'{{"backend": "nccl", "rank": {rank.number}, "world_size": {ranks}}}'
        rank.lines.append(
            f'{{"schemaVersion": 1, "distributedInfo": {info},\n"baseTimeNanoseconds": '
            '1700000000000000000, "traceEvents": [\n'
        )
    step = 0
    while sum(rank.size for rank in all_ranks) < size:
        begins = [max(rank.host, rank.device) for rank in all_ranks]
        for rank, begin in zip(all_ranks, begins, strict=True):
            rank.host = begin
        for layer in range(LAYERS):
            arrivals = [arrival(rank, layer, ranks) for rank in all_ranks]
            end = max(arrivals) + 120.0
            for rank, arrive in zip(all_ranks, arrivals, strict=True):
                rank.lines += collective(rank, arrive, end, ranks)
        for rank, begin in zip(all_ranks, begins, strict=True):
            rank.lines += ending(rank, begin, step)
            rank.put()
        step += 1
    for rank in all_ranks:
        rank.lines.append('{"ph": "M", "name": "process_name", "pid": 1, "args": {}}]}\n')
        rank.put()
        rank.file.close()
    return sum(rank.size for rank in all_ranks), paths


def arrival(rank: Rank, layer: int, ranks: int) -> float:
    """Write the ops of a layer; return when the rank comes to the collective behind them."""
    slow = 1.05 if (rank.number + layer) % ranks == 0 else 1.0
    for number in range(OPS):
        rank.lines += op(rank, KERNELS[number % len(KERNELS)], slow)
    return max(rank.device, rank.host + 5.0)


def op(rank: Rank, name: str, slow: float) -> Iterator[str]:
    """Yield an op within another one, its call, its kernel, and both ends of the arrow."""
    draw = rank.draw.random
    begin, call = rank.host, rank.host + 3 + draw()
    took, number = 3.0 + 2 * draw(), rank.count
    rank.host = call + took + 1 + draw()
    rank.count += 1
    starts = max(rank.device, call + took)
    rank.device = starts + slow * (5 + 20 * draw())
    known = f'"External id": {3 * number}, "Record function id": {2 * number}'
    more = f'"Sequence number": {number}, "Fwd thread id": 0, "Ev Idx": {2 * number}'
    length = rank.host - begin
    yield from span("cpu_op", "aten::linear", 7, begin, length, f"{known}, {more}")
    yield from span("cpu_op", "aten::addmm", 7, begin + 1, length - 1.5, f"{known}, {more}")
    yield from launched(rank, number, call, took)
    yield from kernel(name, 7, number, starts, rank.device - starts)


def launched(rank: Rank, number: int, call: float, took: float) -> Iterator[str]:
    said = f'"External id": {3 * number}, "cbid": 211, "correlation": {number}'
    yield from span("cuda_runtime", "cudaLaunchKernel", 7, call, took, said)
    yield (
        f'  {{\n    "ph": "s", "id": {number}, "pid": 1, "tid": 7, "ts": {call:.3f},\n'
        '    "cat": "ac2g", "name": "ac2g"\n  },\n'
    )


def kernel(
    name: str, stream: int, number: int, begin: float, length: float, more: str = ""
) -> Iterator[str]:
    blocks = number % 977
    said = (
        f'"External id": {3 * number}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, '
        f'"correlation": {number}, "registers per thread": 40, "shared memory": 400, '
        f'"blocks per SM": {blocks / 108:.6f}, "warps per SM": {blocks / 27:.6f}, "grid": '
        f'[{blocks}, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 75{more}'
    )
    yield from span("kernel", name, stream, begin, length, said, process=0)
    yield (
        f'  {{\n    "ph": "f", "id": {number}, "pid": 0, "tid": {stream}, "ts": {begin:.3f},\n'
        '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  },\n'
    )


def collective(rank: Rank, arrive: float, end: float, ranks: int) -> Iterator[str]:
    number, call = rank.count, rank.host
    rank.count += 1
    rank.host += 8.0
    rank.device = end
    members = ", ".join(map(str, range(ranks)))
    said = (
        ', "Collective name": "allreduce", "In msg nelems": 8388608, "Out msg nelems": 8388608, '
        f'"Group size": {ranks}, "dtype": "BFloat16", "Process Group Name": "0", '
        f'"Process Group Description": "default_pg", "Process Group Ranks": "[{members}]"'
    )
    yield from span("cpu_op", "record_param_comms", 7, call, 8.0, f'"External id": 1{said}')
    yield from launched(rank, number, call + 1, 4.0)
    yield from kernel(NCCL, 20, number, arrive, end - arrive, said)


def ending(rank: Rank, begin: float, step: int) -> Iterator[str]:
    """Yield the wait at the end of a step, and its mark."""
    end = max(rank.host, rank.device) + 10.0
    said = f'"cbid": 165, "correlation": {rank.count}'
    rank.count += 1
    yield from span("cuda_runtime", "cudaDeviceSynchronize", 7, rank.host, end - rank.host, said)
    rank.host = end
    yield from span("user_annotation", f"ProfilerStep#{step}", 7, begin, end - begin, '"Ev Idx": 0')


def span(
    category: str, name: str, lane: int, begin: float, length: float, said: str, process: int = 1
) -> Iterator[str]:
    """Yield a complete event."""
    yield (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, '
        f'"tid": {lane},\n    "ts": {begin:.3f}, "dur": {length:.3f},\n'
        f'    "args": {{\n      {said}\n    }}\n  }},\n'
    )


if __name__ == "__main__":
    main()
