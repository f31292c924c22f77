"""How much in step workers are: by hand."""

from __future__ import annotations

import numpy as np
import pytest
from coherence import coherence


def test_coherence_of_two_workers() -> None:
    """Steps of 2 s: together, a quarter of a step apart (|1 + i| / 2), and half a step."""
    begin = np.arange(0.0, 20, 2)
    for lead, expected in ((0.0, 1.0), (0.5, np.sqrt(0.5)), (1.0, 0.0)):
        begins = [begin, begin + lead]
        found = coherence(begins, [each + 2 for each in begins], np.array([5.0, 8.5]))
        assert found == pytest.approx(expected)


def test_coherence_of_steps_of_unlike_length() -> None:
    """At 3 s a worker is in the middle of 2 to 4, the other at a quarter of 2 to 6."""
    found = coherence(
        [np.array([0.0, 2.0]), np.array([2.0])],
        [np.array([2.0, 4.0]), np.array([6.0])],
        np.array([3.0]),
    )
    assert found == pytest.approx(np.sqrt(0.5))
