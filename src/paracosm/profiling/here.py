"""The environment of this process: what its timings depend on beside the op."""

from __future__ import annotations

import platform
from pathlib import Path

from paracosm.errors import InputError, require
from paracosm.profiling.allocator import DEFAULT, keep_memory
from paracosm.profiling.environment import Environment
from paracosm.profiling.pinning import flushes_denormals

__all__ = ["environment_here", "free_memory", "last_level_cache"]

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
