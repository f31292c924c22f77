"""The real rank's link as its own messages show it."""

from __future__ import annotations

import numpy as np
import pytest

from paracosm.emulation.wire.links import MeasuredLink


def test_latency_and_bandwidth_of_a_link_with_stragglers() -> None:
    # 50 us and 1 GB/s; one message in eight takes 10 ms longer, which must not show.
    random = np.random.default_rng(5)
    link = MeasuredLink()
    for number in range(200):
        size = int(random.choice([64, 1024, 1 << 17, 1 << 20]))
        late = 0.01 if number % 8 == 0 else 0.0
        link.took(size, 50e-6 + size * 1e-9 * (size > 4096) + late)
    assert link.alpha == pytest.approx(50e-6, rel=1e-6)
    assert link.beta == pytest.approx(1e-9, rel=0.01)


def test_a_link_that_changes_is_followed() -> None:
    link = MeasuredLink()
    for seconds in (1e-3, 5e-5):
        for _ in range(100):
            link.took(8, seconds)
    assert link.alpha == pytest.approx(5e-5)


def test_nothing_is_known_before_the_first_message() -> None:
    link = MeasuredLink()
    assert (link.alpha, link.beta) == (0.0, 0.0)
