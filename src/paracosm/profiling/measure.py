"""One visit to one op: its calls timed with cold data and warm.

*Warm* is how Huang et al. profile (section 3): the same op many times in a row, on the same data.
In a real iteration hundreds of megabytes pass through the cache between two visits to a tensor, so
an op finds its data in memory. *Cold* makes it so: the cache is streamed full with other data, the
op runs once on a second set of arguments, so that its code is warm, and is then timed on the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paracosm.errors import require
from paracosm.graphs.op import Op
from paracosm.profiling.clock import Clock
from paracosm.profiling.here import last_level_cache
from paracosm.profiling.instantiate import Call, instantiate

__all__ = ["Bench"]

FLUSH = 1.5  # of the last-level cache is streamed through it
ROW = 1e-3  # seconds that a row of warm calls takes, at least


class Bench:
    """Times ops on one device, one visit at a time."""

    def __init__(self, device: str, clock: Clock) -> None:
        torch: Any = require("torch", "torch", "profiling ops")
        self._device, self._clock = device, clock
        length = int(FLUSH * last_level_cache(device)) // 4
        self._stream = torch.ones(length, device=device)

    def visit(self, op: Op, caches: Sequence[str], seed: int) -> dict[str, float]:
        """Return the seconds of one call for each of `caches`.

        Raises:
            InputError: the op cannot be instantiated here.
            RuntimeError, IndexError, ...: whatever the op itself raises.
        """
        first = instantiate(op, self._device, seed)
        second = instantiate(op, self._device, seed + 1)
        second()
        self._clock.wait()
        found: dict[str, float] = {}
        if "cold" in caches:
            found["cold"] = self._cold(first, second)
        if "warm" in caches:
            found["warm"] = self._warm(first)
        return found

    def _cold(self, first: Call, second: Call) -> float:
        self._stream.add_(1.0)
        self._clock.seconds(second)  # timed as well: the clock's code is warm then, too
        self._clock.head_start()
        return self._clock.seconds(first)

    def _warm(self, call: Call) -> float:
        once = max(self._clock.seconds(call), 1e-7)
        times = max(1, min(1000, int(ROW / once)))
        return self._clock.seconds(call, times) / times
