"""Where a run ran: what has to be the same for it to come out the same, and nothing private."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import paracosm

__all__ = ["describe_environment"]

# What numbers and timings may depend on.
PACKAGES = ("numpy", "scipy", "numba", "torch", "scikit-learn")


def describe_environment(seed: int | None = None) -> dict[str, object]:
    """Return versions, hardware and seed. No host name, no user name, no path.

    Packages are named if they are installed, imported or not.
    """
    versions = {package: _version(package) for package in PACKAGES}
    return {
        "versions": {
            "python": platform.python_version(),
            "paracosm": paracosm.__version__,
            **{package: found for package, found in versions.items() if found},
        },
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": _cores(),
        "seed": seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
