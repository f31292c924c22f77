"""What reading the clock costs."""

from __future__ import annotations

from typing import Any

from paracosm.compiled import compiled
from paracosm.relaxation.threads.atomics import now

__all__ = ["read_clock"]


@compiled
def read_clock(times: Any) -> int:
    """Read the clock so many times; return the nanoseconds that it took."""
    start = now()
    last = start
    for _ in range(times):
        last = now()
    return int(last - start)
