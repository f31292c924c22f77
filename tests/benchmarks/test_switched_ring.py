"""Rings that change their link at a size: recovered where they are, and on a real sweep."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from switched_ring import SwitchedLink, fit_ring, fit_switched_ring, nccl_link

from paracosm.cluster.collectives import ring_all_reduce
from paracosm.cluster.link import Link
from paracosm.errors import InputError

SWEEP = Path(__file__).parents[1] / "data" / "vtrain" / "AR_GPU8_1M_64M_LUT"
MB = 2**20
SLOW, FAST = Link(bandwidth=1e9, latency=1e-6), Link(bandwidth=4e9, latency=50e-6)


def measured() -> tuple[list[float], list[float]]:
    """Return bytes and seconds of the sweep of eight V100."""
    lines = [line.split(",") for line in SWEEP.read_text().splitlines()[1:]]
    return [float(line[0]) for line in lines], [float(line[3]) * 1e-9 for line in lines]


def test_by_hand() -> None:
    """Four ranks, 8 GB: six steps of 2 GB, at 1 GB/s below the threshold, at 4 GB/s above."""
    link = switched(threshold=1e9 / 4)
    assert ring_all_reduce(4, 8e9, link) == pytest.approx(6 * (0.5 + 50e-6))
    assert ring_all_reduce(4, 8e8, link) == pytest.approx(6 * (0.2 + 1e-6))


def switched(threshold: float) -> SwitchedLink:
    """Return FAST, and SLOW for messages below a threshold."""
    return SwitchedLink(FAST.bandwidth, FAST.latency, small=SLOW, threshold=threshold)


def test_nccl_changes_its_protocol_where_it_reckons_that_to_be_faster() -> None:
    """By hand, 8 ranks and 92 GB/s: 14 + 14 x 1.9 us and bytes at 92 % meet 8.4 + 14 x 3.4 us where
    15.4 us are 8 / 92 of the seconds of all bytes on a link, 1.75 times the vector."""
    link = nccl_link(8, 92e9, share=0.5)
    vector = 15.4e-6 / (8 / 92) * 92e9 / 1.75
    assert 8 * link.threshold == pytest.approx(vector)
    below, above = 0.999 * vector, 1.001 * vector
    assert ring_all_reduce(8, below, link) == pytest.approx(40.6e-6 + 1.75 * below / 46e9)
    assert ring_all_reduce(8, above, link) == pytest.approx(56e-6 + 1.75 * above / 92e9)


def test_two_ranks_have_one_protocol() -> None:
    """14 + 2 x 1.9 us are more than 8.4 + 2 x 3.4: nothing speaks for LL128."""
    assert nccl_link(2, 20e9).threshold == 0


def test_nccl_reckons_where_eight_gpus_were_seen_to_change() -> None:
    """Between 13 and 14 MiB, from nothing but 135 GB/s."""
    assert 13 * MB < 8 * nccl_link(8, 135e9).threshold < 14 * MB


@given(
    st.integers(2, 64),
    st.floats(1e6, 1e12),
    st.floats(1e-7, 1e-2),
    st.lists(st.floats(1e3, 1e9), min_size=3, max_size=20, unique=True),
)
def test_the_link_of_a_ring_is_found(
    ranks: int, bandwidth: float, latency: float, sizes: list[float]
) -> None:
    link = Link(bandwidth=bandwidth, latency=latency)
    seconds = [ring_all_reduce(ranks, size, link) for size in sizes]
    found = fit_ring(ranks, sizes, seconds)
    for size, time in zip(sizes, seconds, strict=True):
        assert ring_all_reduce(ranks, size, found) == pytest.approx(time, rel=1e-3)


@pytest.mark.parametrize("switch", [3, 7, 11])
def test_two_links_and_the_size_between_them_are_found(switch: int) -> None:
    sizes = [2.0**power * 1e4 for power in range(14)]
    link = switched(threshold=sizes[switch] / 8)
    found = fit_switched_ring(8, sizes, [ring_all_reduce(8, size, link) for size in sizes])
    assert 8 * found.threshold == pytest.approx(math.sqrt(sizes[switch - 1] * sizes[switch]))
    assert found.small.bandwidth == pytest.approx(SLOW.bandwidth, rel=1e-6)
    assert found.latency == pytest.approx(FAST.latency, rel=1e-6)


def test_one_ring_stays_one() -> None:
    """Four sizes can be divided in no way that leaves two on either side and one to spare."""
    sizes = [1e6, 2e6, 4e6, 8e6]
    found = fit_switched_ring(4, sizes, [ring_all_reduce(4, size, FAST) for size in sizes])
    assert found.threshold == 0
    assert found.bandwidth == pytest.approx(FAST.bandwidth)


def test_latency_is_not_below_zero() -> None:
    """Times that bend up, so that the best line would start below 0."""
    assert fit_ring(2, [1e6, 2e6, 3e6], [1e-3, 2.5e-3, 4.5e-3]).latency == 0


def test_a_real_sweep_is_predicted_better_by_two_links() -> None:
    """NCCL on eight V100 goes over to another protocol between 13 and 14 MB."""
    sizes, seconds = measured()
    fitted, others = slice(0, None, 2), slice(1, None, 2)
    link = fit_ring(8, sizes[fitted], seconds[fitted])
    switching = fit_switched_ring(8, sizes[fitted], seconds[fitted])
    assert 13 * MB < 8 * switching.threshold < 15 * MB

    def error(times: list[float]) -> float:
        pairs = list(zip(times, seconds[others], strict=True))
        return sum(abs(time / true - 1) for time, true in pairs) / len(pairs)

    one = error([ring_all_reduce(8, size, link) for size in sizes[others]])
    two = error([ring_all_reduce(8, size, switching) for size in sizes[others]])
    assert two < 0.02 < 0.05 < one


@pytest.mark.parametrize(
    ("ranks", "sizes", "seconds", "message"),
    [
        (1, [1.0, 2.0], [1.0, 2.0], "a ring needs 2 of both"),
        (2, [1.0], [1.0], "a ring needs 2 of both"),
        (2, [1.0, 2.0], [1.0], "give one for each"),
        (2, [1.0, 2.0], [1.0, 0.0], "above 0"),
        (2, [1.0, 2.0], [1.0, math.nan], "above 0"),
    ],
)
def test_what_is_no_sweep_is_refused(
    ranks: int, sizes: list[float], seconds: list[float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit_ring(ranks, sizes, seconds)


def test_sizes_must_ascend_and_take_longer() -> None:
    with pytest.raises(InputError, match="ascend"):
        fit_switched_ring(2, [2.0, 1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="no bandwidth"):
        fit_ring(2, [1e6, 2e6], [2.0, 1.0])
