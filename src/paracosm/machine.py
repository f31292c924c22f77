"""The machine that this process runs on, as run folders, databases and recordings name it."""

import os
import platform
from pathlib import Path


def processor_name() -> str:
    """Return name, family and model, since hypervisors shorten names to "AMD EPYC".

    Databases find their timings by it: another spelling would lose them.
    """
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in text.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    return f"{facts['model name']} (family {facts.get('cpu family')}, model {facts.get('model')})"


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
