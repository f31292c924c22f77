"""The stamps of a real run: when each thread started, copied, computed and updated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recording"]

Stamps = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recording:
    """What every thread of a run did when, in nanoseconds since the common start.

    Args:
        pointer: thread k relaxes the rows from `pointer[k]` to `pointer[k + 1]`.
        workers: of each relaxation thread, a row an iteration: start, copied, computed, updated;
            shape (recorded iterations, 4). The start of an iteration is the end of the one before.
        iterations: how many each relaxation thread made, recorded or not.
        checks: of the residual thread, a row a check: start, copied, checked; shape (checks, 3).
            Empty for the stencil variant, which has no such thread.
        norms: the residual norm that each check found, shape (checks,).
        detecting: the index of the check that detected convergence; -1 if none did.
    """

    pointer: NDArray[np.int64]
    workers: tuple[Stamps, ...]
    iterations: tuple[int, ...]
    checks: Stamps
    norms: NDArray[np.float64]
    detecting: int

    @property
    def complete(self) -> bool:
        """Whether every iteration was recorded: only then it can be replayed."""
        recorded = [len(stamps) for stamps in self.workers]
        return recorded == list(self.iterations) and self.detecting < len(self.checks)
