"""Latency and bandwidth from times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster.collectives import (
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_broadcast,
)
from paracosm.cluster.link import Link
from paracosm.errors import InputError
from paracosm.profiling.links.measure import fit_line, link_of

SIZES = [4**power for power in range(5, 14)]


@settings(deadline=None)  # the first call imports SciPy
@given(latency=st.floats(1e-7, 1e-2), bandwidth=st.floats(1e6, 1e12))
def test_a_line_is_found_again(latency: float, bandwidth: float) -> None:
    line = fit_line(SIZES, [latency + size / bandwidth for size in SIZES])
    sizes = np.array(SIZES)
    told, real = latency + sizes / bandwidth, line.latency + sizes / line.bandwidth
    assert np.allclose(told, real, rtol=1e-5)
    assert line.worst < 1e-5
    # A part that no time shows cannot be told.
    if latency > 0.01 * SIZES[0] / bandwidth and latency < 100 * SIZES[-1] / bandwidth:
        assert line.latency == pytest.approx(latency, rel=1e-3)
        assert line.bandwidth == pytest.approx(bandwidth, rel=1e-3)


def test_one_size_that_is_far_off_moves_the_line_little() -> None:
    seconds = [1e-5 + size / 1e9 for size in SIZES]
    seconds[4] *= 3
    line = fit_line(SIZES, seconds)
    assert line.latency == pytest.approx(1e-5, rel=0.1)
    assert line.bandwidth == pytest.approx(1e9, rel=0.1)
    assert line.worst == pytest.approx(2 / 3, rel=0.1)


def test_neither_latency_nor_slope_is_below_zero() -> None:
    falling = fit_line(SIZES, [1e-3 - size * 1e-12 for size in SIZES])
    reached = max(size / (1e-3 - size * 1e-12) for size in SIZES)
    assert falling.bandwidth == pytest.approx(reached)  # no less, and finite
    assert falling.latency == pytest.approx(1e-3, rel=0.05)
    steep = fit_line([1000, 2000, 3000], [0.5e-3, 2.5e-3, 4.5e-3])
    assert steep.latency == pytest.approx(0, abs=1e-15)
    assert steep.seconds(0) == steep.latency >= 0


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_link_of_a_collective_gives_back_its_time(ranks: int) -> None:
    link = Link(bandwidth=1.25e9, latency=20e-6)
    models = {
        "all_reduce": lambda size: ring_all_reduce(ranks, size, link),
        "all_gather": lambda size: ring_all_gather(ranks, size * ranks, link),
        "reduce_scatter": lambda size: ring_reduce_scatter(ranks, size, link),
        "broadcast": lambda size: tree_broadcast(ranks, size, link),
        "send_recv": link.transfer_time,
    }
    for kind, model in models.items():
        found = link_of(fit_line(SIZES, [model(size) for size in SIZES]), kind, ranks)
        assert found.latency == pytest.approx(20e-6, rel=1e-4), kind
        assert found.bandwidth == pytest.approx(1.25e9, rel=1e-4), kind


def test_what_has_no_line_is_refused() -> None:
    with pytest.raises(InputError, match="two sizes or more, not 1"):
        fit_line([8, 8], [1.0, 2.0])
    with pytest.raises(InputError, match="times above 0"):
        fit_line([8, 16], [0.0, 2.0])
