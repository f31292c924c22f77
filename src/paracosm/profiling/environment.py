"""What a timing depends on besides the op, and keeping this machine steady during measurements.

Device, framework, threads and allocator; clocks that time a call: CPU time of one thread, wall time
of several, events on a GPU; and a probe of the core's current speed.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from paracosm.data_files import parse_json
from paracosm.errors import InputError, require
from paracosm.files import replacing
from paracosm.machine import processor_name, usable_cores
from paracosm.profiling.allocator import DEFAULT, keep_memory
from paracosm.user_cache import kept_folder, user_cache_folder


@dataclass(frozen=True, slots=True)
class Environment:
    """Timings of equal environments may be pooled; those of different ones are unrelated."""

    device: str  # "cpu" or "cuda"
    hardware: str  # the device's own name, "AMD EPYC" with family and model, "NVIDIA H200"
    framework: str  # with its version, "torch 2.13.0"
    threads: int  # of one op (CPU); 0 where the device decides
    allocator: str  # "malloc pinned", "malloc default", "cuda caching"
    denormals: str  # "flushed" or "kept"

    def __str__(self) -> str:
        """Return "AMD EPYC, torch 2.13.0, threads 1, malloc pinned, denormals flushed"."""
        threads = f"threads {self.threads}" if self.threads else ""
        denormals = f"denormals {self.denormals}"
        parts = (self.hardware, self.framework, threads, self.allocator, denormals)
        return ", ".join(part for part in parts if part)

    def to_json(self) -> str:
        """Return the text by which a database identifies it."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Environment":
        """Return the environment of a text, ignoring names that a newer version added."""
        try:
            content = parse_json(text, "environment")
            parts = {part.name: content[part.name] for part in fields(cls)}
            for part in fields(cls):
                if type(parts[part.name]) is not part.type:
                    raise ValueError(f"{part.name} is {str(parts[part.name])[:40]!r}")
            return cls(**parts)
        except (ValueError, TypeError, KeyError) as error:
            shown = str(text)[:200]
            raise InputError(f"holds no environment of timings ({error}): {shown}") from None

    def differences(self, other: "Environment") -> list[str]:
        """Return a phrase for each difference of `other`: 'threads 2, not 1'."""
        pairs = (
            (part.name, getattr(self, part.name), getattr(other, part.name))
            for part in fields(self)
        )
        return [f"{name} {theirs}, not {ours}" for name, ours, theirs in pairs if ours != theirs]


LAST_LEVEL_CACHE = 32 << 20  # bytes, where the system does not say


def environment_here(
    device: str = "cpu", threads: int = 1, pinned: bool = True, allocator: str | None = None
) -> Environment:
    """Return the environment of a profile made here and now.

    Args:
        threads: of one op, on the CPU.
        pinned: whether malloc keeps memory (from this call on) and denormal numbers are flushed, as
            `profile` arranges; see `allocator` for what a running process can do.
        allocator: that of another process to describe; this process is not changed.
    """
    if device == "cpu" and allocator is not None:
        return replace(_described_cpu(pinned), threads=threads, allocator=allocator)
    torch = require("torch", "torch", "profiling ops")
    if device == "cpu":
        held = keep_memory() if pinned else DEFAULT
        return replace(_cpu(torch, pinned), threads=threads, allocator=held)
    if device != "cuda":
        raise InputError(f'unknown device "{device}": choose from cpu, cuda')
    if not torch.cuda.is_available():
        raise InputError("no CUDA device here: PyTorch sees none")
    return Environment(
        device="cuda",
        hardware=str(torch.cuda.get_device_name()),
        framework=f"{_framework(torch)}, CUDA {torch.version.cuda}",
        threads=0,
        allocator="cuda caching",
        denormals="kept",
    )


def _cpu(torch: Any, pinned: bool) -> Environment:
    """Return the environment of one thread here with the allocator of the system."""
    can_flush = torch.set_flush_denormal(flushes_denormals(torch))  # which changes nothing
    return Environment(
        device="cpu",
        hardware=f"{processor_name()}, {torch.backends.cpu.get_cpu_capability()}",
        framework=_framework(torch),
        threads=1,
        allocator=DEFAULT,
        denormals="flushed" if pinned and can_flush else "kept",
    )


def _framework(torch: Any) -> str:
    return f"torch {torch.__version__.split('+')[0]}"


def _described_cpu(pinned: bool) -> Environment:
    """Return the environment of one thread here, kept in the user's cache folder: to import PyTorch
    for its words on this processor takes seconds."""
    base = user_cache_folder()
    if base is None or importlib.util.find_spec("torch") is None:
        return _cpu(require("torch", "torch", "profiling ops"), pinned)
    told = (version("torch"), processor_name(), os.environ.get("ATEN_CPU_CAPABILITY"), pinned)
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    folder = kept_folder(base, "environments", digest)
    file = None if folder is None else folder / "environment.json"
    if file is not None:
        with contextlib.suppress(InputError, OSError, UnicodeDecodeError):
            return Environment.from_json(file.read_text())
    environment = _cpu(require("torch", "torch", "profiling ops"), pinned)
    if file is not None:
        with contextlib.suppress(OSError), replacing(file) as unfinished:
            unfinished.write_text(environment.to_json())
    return environment


def last_level_cache(device: str = "cpu") -> int:
    """Return the bytes of the largest cache between the cores, or the SMs, and memory."""
    if device == "cuda":
        torch = require("torch", "torch", "profiling ops")
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [file.read_text().strip() for file in caches]
    bytes_of = [int(size.rstrip("KM")) * _UNITS.get(size[-1:], 1) for size in sizes]
    return max(bytes_of, default=LAST_LEVEL_CACHE)


def private_cache() -> int:
    """Return the bytes of the largest cache that a core has to itself."""
    sizes = []
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (folder / "shared_cpu_list").read_text().strip() == "0":
            size = (folder / "size").read_text().strip()
            sizes.append(int(size.rstrip("KM")) * _UNITS.get(size[-1:], 1))
    return max(sizes, default=PRIVATE_CACHE)


PRIVATE_CACHE = 1 << 20  # bytes, where the system does not say
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def free_memory(device: str = "cpu") -> int | None:
    """Return free bytes, limited by the control group; None where unknown."""
    if device == "cuda":
        torch = require("torch", "torch", "profiling ops")
        return int(torch.cuda.mem_get_info()[0])
    sizes = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    for folder, limit, used in _GROUPS:
        try:
            allowed = int((folder / limit).read_text())  # "max" where there is no limit
            held = int((folder / used).read_text()) - _cached_files(folder)
        except (OSError, ValueError):
            continue
        sizes.append(max(0, allowed - held))
    return min(sizes, default=None)


_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where Linux tells a container of its limit: in version 2 of control groups, and in version 1."""


def _cached_files(folder: Path) -> int:
    lines = (folder / "memory.stat").read_text().splitlines()
    sizes = [line.split()[1] for line in lines if line.startswith("inactive_file ")]
    return int(sizes[0]) if sizes else 0


_SHARED = 1 << 20  # numbers of a tensor of which every thread gets a part


def cores_for(threads: int) -> set[int]:
    """Return the cores that this process may use.

    Raises:
        InputError: they are too few for so many threads.
    """
    cores = usable_cores()
    if not 1 <= threads <= len(cores):
        raise InputError(f"threads: this process may use {len(cores)} cores, not {threads}")
    return cores


@contextlib.contextmanager
def pinned(device: str, threads: int = 1, seed: int | None = None) -> Iterator[None]:
    """Make PyTorch use `threads` threads, one of them on a fixed core; flush denormal numbers.

    Threads, cores and denormal numbers are restored at the end of the block, but the allocator goes
    on keeping memory. With a `seed` the block has random numbers of its own, and the caller's are
    unaffected.
    """
    torch = require("torch", "torch", "profiling ops")
    with contextlib.ExitStack() as stack:
        if seed is not None:
            devices = [torch.cuda.current_device()] if device == "cuda" else []
            stack.enter_context(torch.random.fork_rng(devices=devices))
            torch.manual_seed(seed % 2**63)
        if device != "cpu":
            yield
            return
        cores = cores_for(threads)
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(torch.set_flush_denormal, flushes_denormals(torch))
        keep_memory()
        torch.set_num_threads(threads)
        can_flush = torch.set_flush_denormal(True)
        if can_flush and threads > 1 and not flushes_denormals(torch, _SHARED):
            raise InputError(
                "threads: those of PyTorch were started before, and are slow on denormal numbers: "
                "profile several threads first thing in a process"
            )
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            stack.callback(os.sched_setaffinity, 0, cores)
            os.sched_setaffinity(0, {max(cores)})
        yield


def flushes_denormals(torch: Any, numbers: int = 1) -> bool:
    """Whether denormal numbers become 0 in a thread that processes so many numbers."""
    denormal = torch.full((numbers,), 1, dtype=torch.int32).view(torch.float32)
    return not (denormal * 1.0).view(torch.int32).any()


Call = Callable[[], object]


class Clock(Protocol):
    """Times calls, including the time to free what they return."""

    def seconds(self, call: Call, times: int = 1) -> float:
        """Return the seconds of `times` calls in a row, together."""

    def head_start(self) -> None:
        """Let the host get ahead of the device, so that the next launch is not timed."""

    def wait(self) -> None:
        """Wait until the device is idle."""


class HostClock:
    """CPU time of this thread, or wall time if an op uses several threads.

    CPU time excludes other processes on this core. Reading the clock takes a fraction of a
    microsecond, which is measured once and subtracted.
    """

    def __init__(self, threads: int = 1) -> None:
        self._now = time.thread_time_ns if threads == 1 else time.perf_counter_ns
        self._overhead = 0
        self._overhead = min(self._span(lambda: None, 1) for _ in range(200))

    def seconds(self, call: Call, times: int = 1) -> float:
        return max(0, self._span(call, times) - self._overhead) * 1e-9

    def _span(self, call: Call, times: int) -> int:
        repeats, now = range(times), self._now
        begin = now()
        for _ in repeats:
            call()
        return now() - begin

    def head_start(self) -> None:
        """Do nothing: the CPU has no queue to get ahead of or to wait for."""

    wait = head_start


class CudaClock:
    """Time between two events on the current stream.

    On an idle device the first event passes at once, so that launching the call would be timed,
    too. After a `head_start` the events and the call are queued before the device reaches them.
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
    return CudaClock() if device == "cuda" else HostClock(threads)


SIZE = 384  # of the square matrices: 0.1 GFLOP, a millisecond or two of one core
STREAM = 1 << 22  # floats that are copied: 16 MiB


class SpeedProbe:
    """Multiplies two matrices and copies a block of memory; calling it returns the seconds.

    Shared machines change their speed by a factor of two within seconds. A probe next to each
    timing shows whether two timings were made at the same speed.
    """

    def __init__(self, device: str, clock: Clock) -> None:
        torch: Any = require("torch", "torch", "profiling ops")
        self._clock = clock
        a, b = (torch.ones(SIZE, SIZE, device=device) for _ in range(2))
        c = torch.empty(SIZE, SIZE, device=device)
        source, target = torch.ones(STREAM, device=device), torch.empty(STREAM, device=device)
        multiply = torch.mm

        def work() -> None:
            multiply(a, b, out=c)
            target.copy_(source)

        self._work = work
        self()

    def __call__(self) -> float:
        return self._clock.seconds(self._work)


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS and OpenMP use one thread."""
    pools = require("threadpoolctl", "torch", "fitting estimators")
    context: AbstractContextManager[object] = pools.threadpool_limits(1)
    return context
