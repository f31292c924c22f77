"""The interval of an iteration, from the intervals of its ops.

Three kinds of error, each treated as what it is:

- Of an op that was measured: the error of its mean. Its nodes share it; those of different ops
  are independent.
- Of ops that were estimated: an estimator that is wrong about one convolution is wrong about the
  others in the same direction. All estimated ops of one type move together, types independently.
- Of the machine: a core that is slower than when the profile was made is so for all ops. The
  spread of the speed probe says by how much; all ops move together.

Each part is moved to its upper end alone, the graph is replayed, and what the iteration gains by it
is that part's contribution, so that ops which the host hides contribute nothing. Independent
contributions add as squares. The same downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["iteration_interval"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]


def iteration_interval(
    duration: Floats,
    low: Floats,
    high: Floats,
    part: Codes,
    common: float,
    makespan: Callable[[Floats], float],
) -> tuple[float, float]:
    """Return the seconds between which the iteration is thought to take.

    Args:
        duration: n seconds.
        low, high: n seconds, the intervals of the nodes.
        part: n numbers: nodes of one number err together.
        common: relative error that all nodes share.
        makespan: replays durations and returns the time of the iteration.
    """
    base = makespan(duration)
    ends = []
    for end, factor in ((low, 1 - common), (high, 1 + common)):
        moved = np.unique(part[end != duration])
        gains = [makespan(np.where(part == each, end, duration)) - base for each in moved]
        if common > 0:
            gains.append(makespan(duration * max(factor, 0.0)) - base)
        ends.append(math.sqrt(sum(gain * gain for gain in gains)))
    return max(base - ends[0], 0.0), base + ends[1]
