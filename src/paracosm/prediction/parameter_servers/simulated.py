"""What a simulation of workers and parameter servers came to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["CHUNK", "Simulated"]

Floats = npt.NDArray[np.float64]

CHUNK = np.dtype(
    [
        ("worker", np.int32),
        ("step", np.int32),
        ("op", np.int32),
        ("turn", np.int32),
        ("begin", np.float64),
        ("end", np.float64),
    ]
)
"""A piece of an op without interruption: whose, of the worker's step with this number (from 0), 0
for the op's first turn and 1 for its second, from when to when in seconds."""


@dataclass(frozen=True)
class Simulated:
    """Virtual times of simulated steps.

    Attributes:
        step_begin: seconds, (workers, steps of each); NaN of steps that were not begun.
        step_end: seconds, (workers, steps of each); NaN of steps that did not end. The next step
            begins the gap later.
        chunks: in the order of their ends, an array of `CHUNK`; empty if they were not kept.
        accepted: synchronous mode: whether a step's gradients were among the first; all True in
            asynchronous mode, (workers, steps).
    """

    step_begin: Floats
    step_end: Floats
    chunks: npt.NDArray[np.void]
    accepted: npt.NDArray[np.bool_]
