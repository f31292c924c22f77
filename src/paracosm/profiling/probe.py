"""A fixed piece of work, timed again and again: what the core, or the GPU, is worth at the moment.

Shared machines change their speed by a factor of two within seconds. A probe beside every timing
shows whether two of them were made on the same machine.
"""

from __future__ import annotations

from typing import Any

from paracosm.errors import require
from paracosm.profiling.clock import Clock

__all__ = ["SpeedProbe"]

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
