"""The environment of this process: what its timings depend on beside the op."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from paracosm.errors import InputError, require
from paracosm.profiling.allocator import DEFAULT, keep_memory
from paracosm.profiling.environment import Environment

__all__ = [
    "Clock",
    "CudaClock",
    "HostClock",
    "SpeedProbe",
    "clock_for",
    "environment_here",
    "flushes_denormals",
    "free_memory",
    "last_level_cache",
    "one_thread",
    "own_random_numbers",
    "pinned",
]


LAST_LEVEL_CACHE = 32 << 20  # bytes, where the system does not say


def environment_here(
    device: str = "cpu", threads: int = 1, pinned: bool = True, allocator: str | None = None
) -> Environment:
    """Return the environment that a profile made here and now has.

    Args:
        device: "cpu" or "cuda".
        threads: of one op, on the CPU.
        pinned: whether malloc keeps memory and denormal numbers are flushed, as `profile` sees to
            (from then on malloc does; see `allocator` for how much of it a process can do).
        allocator: the one of another process that is meant; nothing is changed in this one.

    Raises:
        InputError: there is no such device here.
        MissingExtraError: PyTorch is not installed.
    """
    torch = require("torch", "torch", "profiling ops")
    framework = f"torch {torch.__version__.split('+')[0]}"
    if device == "cpu":
        can_flush = torch.set_flush_denormal(flushes_denormals(torch))  # which changes nothing
        return Environment(
            device="cpu",
            hardware=f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
            framework=framework,
            threads=threads,
            allocator=allocator or (keep_memory() if pinned else DEFAULT),
            denormals="flushed" if pinned and can_flush else "kept",
        )
    if device != "cuda":
        raise InputError(f'unknown device "{device}": choose from cpu, cuda')
    if not torch.cuda.is_available():
        raise InputError("no CUDA device here: PyTorch sees none")
    return Environment(
        device="cuda",
        hardware=str(torch.cuda.get_device_name()),
        framework=f"{framework}, CUDA {torch.version.cuda}",
        threads=0,
        allocator="cuda caching",
        denormals="kept",
    )


def last_level_cache(device: str = "cpu") -> int:
    """Return the bytes of the largest cache between the cores, or the SMs, and memory."""
    if device == "cuda":
        torch = require("torch", "torch", "profiling ops")
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    sizes = [
        _bytes(file.read_text())
        for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    return max(sizes, default=LAST_LEVEL_CACHE)


def free_memory(device: str = "cpu") -> int | None:
    """Return the bytes that this process could still be given; None where the system does not say.

    On Linux the system's own number, or what its control group is short of its limit, whichever is
    less.
    """
    if device == "cuda":
        torch = require("torch", "torch", "profiling ops")
        return int(torch.cuda.mem_get_info()[0])
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    for folder, limit, used in _GROUPS:
        try:
            allowed = int((folder / limit).read_text())  # "max" where there is no limit
            held = int((folder / used).read_text()) - _cached_files(folder)
        except (OSError, ValueError):
            continue
        found.append(max(0, allowed - held))
    return min(found, default=None)


_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where Linux tells a container of its limit: in version 2 of control groups, and in version 1."""


def _cached_files(folder: Path) -> int:
    """Return the bytes of a control group that are given up when somebody needs them."""
    lines = (folder / "memory.stat").read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith("inactive_file ")]
    return int(found[0]) if found else 0


def _bytes(text: str) -> int:
    text = text.strip()
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    return int(text.rstrip("KM")) * factor


def _processor() -> str:
    """Return name, family and model: hypervisors shorten names to "AMD EPYC"."""
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in text.splitlines())
    found = {name.strip(): value.strip() for name, _, value in pairs}
    if "model name" not in found:
        return platform.processor() or platform.machine()
    return f"{found['model name']} (family {found.get('cpu family')}, model {found.get('model')})"


_SHARED = 1 << 20  # numbers of a tensor of which every thread gets a part


@contextlib.contextmanager
def pinned(device: str, threads: int = 1) -> Iterator[None]:
    """Let PyTorch use `threads` threads, on one core where it is one; flush denormal numbers.

    Threads, cores and denormal numbers are as before at the end of the block. The allocator goes on
    keeping memory: what malloc has been told, it cannot be asked.
    """
    torch = require("torch", "torch", "profiling ops")
    if device != "cpu":
        yield
        return
    cores = (
        os.sched_getaffinity(0)
        if hasattr(os, "sched_getaffinity")
        else set(range(os.cpu_count() or 1))
    )
    if not 1 <= threads <= len(cores):
        raise InputError(f"threads: this process may use {len(cores)} cores, not {threads}")
    before, flushed = torch.get_num_threads(), flushes_denormals(torch)
    keep_memory()
    try:
        torch.set_num_threads(threads)
        can_flush = torch.set_flush_denormal(True)
        if can_flush and threads > 1 and not flushes_denormals(torch, _SHARED):
            raise InputError(
                "threads: those of PyTorch were started before, and are slow on denormal numbers: "
                "profile several threads first thing in a process"
            )
        if threads == 1:
            _stay_on({max(cores)})
        yield
    finally:
        if threads == 1:
            _stay_on(cores)
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(before)


@contextlib.contextmanager
def own_random_numbers(device: str, seed: int) -> Iterator[None]:
    """Seed PyTorch's random numbers; the caller's go on afterwards as if nothing had been."""
    torch = require("torch", "torch", "profiling ops")
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def flushes_denormals(torch: Any, numbers: int = 1) -> bool:
    """Whether denormal numbers become 0 in this thread, or in all that share so many numbers.

    PyTorch can be told to, but not asked whether.
    """
    denormal = torch.full((numbers,), 1, dtype=torch.int32).view(torch.float32)
    return not (denormal * 1.0).view(torch.int32).any()


def _stay_on(cores: set[int]) -> None:
    """Let this thread run on `cores` only, where the system can say so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


Call = Callable[[], object]


class Clock(Protocol):
    """Times calls; what a call returns is dropped, and the time to free it counts."""

    def seconds(self, call: Call, times: int = 1) -> float:
        """Return the seconds of `times` calls in a row, together."""

    def head_start(self) -> None:
        """Let the host get ahead of the device, so that launching what comes next is not timed."""

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""


class HostClock:
    """CPU time of this thread, or wall time where an op uses several threads.

    CPU time does not count what other processes did to this core's time slices. A look at the clock
    takes a fraction of a microsecond, which is measured once and subtracted.
    """

    def __init__(self, threads: int = 1) -> None:
        self._now = time.thread_time_ns if threads == 1 else time.perf_counter_ns
        self._overhead = 0
        self._overhead = min(self._span(_nothing, 1) for _ in range(200))

    def seconds(self, call: Call, times: int = 1) -> float:
        return max(0, self._span(call, times) - self._overhead) * 1e-9

    def head_start(self) -> None:
        """Do nothing: on the CPU there is no device to be ahead of."""

    def wait(self) -> None:
        """Return at once: calls on the CPU are done when they return."""

    def _span(self, call: Call, times: int) -> int:
        repeats, now = range(times), self._now
        begin = now()
        for _ in repeats:
            call()
        return now() - begin


class CudaClock:
    """Time between two events on the current stream.

    On a device that has nothing to do, the first event is over at once, and the time until the call
    is launched counts as well. After a `head_start` the events and the call are in its queue before
    it gets there.
    """

    def __init__(self) -> None:
        self._torch: Any = require("torch", "torch", "profiling ops")

    def seconds(self, call: Call, times: int = 1) -> float:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def head_start(self) -> None:
        self._torch.cuda._sleep(_HEAD_START)

    def wait(self) -> None:
        self._torch.cuda.synchronize()


_HEAD_START = 1_000_000  # cycles of the device: half a millisecond, time to launch many kernels


def clock_for(device: str, threads: int = 1) -> Clock:
    """Return the clock for a device, "cpu" or "cuda"."""
    return CudaClock() if device == "cuda" else HostClock(threads)


def _nothing() -> None:
    pass


SIZE = 384  # of the square matrices: 0.1 GFLOP, a millisecond or two of one core
STREAM = 1 << 22  # floats that are copied: 16 MiB


class SpeedProbe:
    """Multiplies two matrices and copies a block of memory; call it for the seconds that took."""

    def __init__(self, device: str, clock: Clock) -> None:
        torch: Any = require("torch", "torch", "profiling ops")
        self._clock = clock
        self._a = torch.ones(SIZE, SIZE, device=device)
        self._b = torch.ones(SIZE, SIZE, device=device)
        self._c = torch.empty(SIZE, SIZE, device=device)
        self._from = torch.ones(STREAM, device=device)
        self._to = torch.empty(STREAM, device=device)
        self._multiply = torch.mm
        self()

    def __call__(self) -> float:
        return self._clock.seconds(self._work)

    def _work(self) -> None:
        self._multiply(self._a, self._b, out=self._c)
        self._to.copy_(self._from)


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS and OpenMP use one thread."""
    pools = require("threadpoolctl", "torch", "fitting estimators")
    context: AbstractContextManager[object] = pools.threadpool_limits(1)
    return context
