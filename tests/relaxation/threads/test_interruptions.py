"""Time slices and foreign load, from stamps whose interruptions are known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from paracosm.relaxation.threads.measurement import Recording, find_interruptions, foreign_load

MICRO, MILLI = 1000, 1_000_000


def recording(lengths: list[int]) -> Recording:
    """One thread, iterations of the given nanoseconds."""
    end = np.cumsum(lengths)
    start = end - lengths
    stamps: NDArray[np.int64] = np.column_stack([start, start, end, end])
    empty = np.empty((0, 3), np.int64)
    return Recording(np.array([0, 1]), (stamps,), (len(lengths),), empty, np.empty(0), -1)


def test_steady_iterations_are_not_interrupted() -> None:
    seen = find_interruptions([recording([50 * MICRO] * 100 + [300 * MICRO])], cores=2)
    assert (seen.slices, seen.share, seen.load) == ((), 1.0, 0.0)


def test_slices_lie_between_interruptions() -> None:
    # 10 us iterations; every 3 ms a core is away for 3 ms, in the middle of an iteration.
    steady = [10 * MICRO] * 299
    seen = find_interruptions([recording(3 * [*steady, 3 * MILLI + 10 * MICRO])], cores=1)
    assert seen.slices == pytest.approx([3e-3, 3e-3])
    assert seen.share == pytest.approx(0.5)
    # Two threads on a core: this one, and a foreign one.
    assert seen.load == pytest.approx(1.0)


def test_foreign_load_explains_the_share() -> None:
    assert foreign_load(1.0, 2, 2) == 0
    assert foreign_load(0.25, 3, 1) == pytest.approx(1.0)
    assert foreign_load(0.9, 8, 2) == 0
